/* macOS and the BSDs: features by sysctlbyname. They have no affinity, and their AMX is not Intel's.
 *
 * On an Intel Mac the AVX-512 sets stay unused: the system turns these registers on at their first use, and xgetbv
 * denies them.
 */
#if !defined(__linux__) && !defined(_WIN32)

#include "base/cpu.h"
#include "base/platform/platform.h"

#include <unistd.h>
#if defined(__APPLE__)
#include <sys/sysctl.h>
#endif

int hc_platform_processors(void) { return (int)sysconf(_SC_NPROCESSORS_ONLN); }

int hc_this_cpu(void) { return -1; }

void hc_leave_cpu(int cpu) { (void)cpu; }

#if HC_ARM

static bool has(const char *feature) {
#if defined(__APPLE__)
    int value = 0;
    size_t size = sizeof value;
    return sysctlbyname(feature, &value, &size, NULL, 0) == 0 && value != 0;
#else
    return (void)feature, false;
#endif
}

uint32_t hc_arm_isa(void) {
    if (!has("hw.optional.arm.FEAT_DotProd"))
        return HC_ISA_NEON;
    return HC_ISA_NEON | HC_ISA_DOTPROD | (has("hw.optional.arm.FEAT_I8MM") ? HC_ISA_I8MM : 0);
}

uint32_t hc_arm_processor(void) { return 0; }

#endif

bool hc_request_amx(void) { return false; }

#endif
