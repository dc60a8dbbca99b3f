/* Linux: affinity by system calls, features of ARM by the auxiliary vector, AMX by request. */
#if defined(__linux__)

#if !defined(_GNU_SOURCE)
#define _GNU_SOURCE /* sched_getcpu, cpu_set_t */
#endif
#include "base/cpu.h"
#include "base/platform/platform.h"

#include <sched.h>
#include <sys/auxv.h>
#include <sys/syscall.h>
#include <unistd.h>

int hc_platform_processors(void) {
    uint64_t mask[128]; /* the library's call wants to know how many the kernel has */
    const long bytes = syscall(SYS_sched_getaffinity, 0, sizeof mask, mask);
    long count = 0;
    for (long i = 0; i < bytes / (long)sizeof *mask; i++)
        for (uint64_t rest = mask[i]; rest; rest &= rest - 1)
            count++;
    return (int)(count > 0 ? count : sysconf(_SC_NPROCESSORS_ONLN));
}

int hc_this_cpu(void) { return sched_getcpu(); }

void hc_leave_cpu(int cpu) {
    cpu_set_t all, others;
    if (cpu >= CPU_SETSIZE || sched_getaffinity(0, sizeof all, &all) != 0)
        return;
    others = all;
    CPU_CLR(cpu, &others);
    if (CPU_COUNT(&others) > 0 && sched_setaffinity(0, sizeof others, &others) == 0)
        sched_setaffinity(0, sizeof all, &all);
}

#if HC_ARM

uint32_t hc_arm_isa(void) {
    const unsigned long has_dotprod = 1ul << 20; /* HWCAP_ASIMDDP */
    const unsigned long has_i8mm = 1ul << 13;    /* HWCAP2_I8MM */
    if (!(getauxval(AT_HWCAP) & has_dotprod))
        return HC_ISA_NEON;
    return HC_ISA_NEON | HC_ISA_DOTPROD | ((getauxval(AT_HWCAP2) & has_i8mm) ? HC_ISA_I8MM : 0);
}

uint32_t hc_arm_processor(void) {
    const unsigned long has_identity = 1ul << 11; /* HWCAP_CPUID: the system answers for the register */
    uint64_t identity = 0;
    if (getauxval(AT_HWCAP) & has_identity)
        __asm__("mrs %0, midr_el1" : "=r"(identity));
    return identity ? HC_PROCESSOR(HC_ARM_CORE, identity >> 24 & 0xff, identity >> 4 & 0xfff) : 0;
}

#endif

bool hc_request_amx(void) {
#if HC_X86
    enum { ARCH_REQ_XCOMP_PERM = 0x1023, XFEATURE_XTILEDATA = 18 };
    return syscall(SYS_arch_prctl, ARCH_REQ_XCOMP_PERM, XFEATURE_XTILEDATA) == 0;
#else
    return false;
#endif
}

#endif
