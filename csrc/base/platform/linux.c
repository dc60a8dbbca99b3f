/* Linux: affinity by system calls, quotas of control groups, features of ARM from the auxiliary vector, AMX on
 * request. */
#if defined(__linux__)

#if !defined(_GNU_SOURCE)
#define _GNU_SOURCE /* sched_getcpu, cpu_set_t */
#endif
#include "base/cpu.h"
#include "base/platform/platform.h"

#include <sched.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <sys/auxv.h>
#include <sys/syscall.h>
#include <unistd.h>

enum { LONGEST_PATH = 4096 };

/* Processors that the quota of one folder allows, rounded up, or 0 if it has no quota. Version 2 of control groups has
 * one file for quota and period, version 1 has two. */
static int quota_of(const char *folder) {
    static const char *const files[][2] = {{"cpu.max", NULL}, {"cpu.cfs_quota_us", "cpu.cfs_period_us"}};
    for (int version = 0; version < 2; version++) {
        long long numbers[2] = {0, 0}; /* of microseconds: quota, period */
        int count = 0;
        for (int i = 0; i < 2 && files[version][i]; i++) {
            char path[LONGEST_PATH + 32];
            snprintf(path, sizeof path, "%s/%s", folder, files[version][i]);
            FILE *const file = fopen(path, "re");
            if (!file)
                break;
            while (count < 2 && fscanf(file, "%lld", &numbers[count]) == 1) /* "max" and -1 stand for no quota */
                count++;
            fclose(file);
        }
        if (count == 2 && numbers[0] > 0 && numbers[1] > 0)
            return (int)hc_min((numbers[0] - 1) / numbers[1] + 1, HC_MAX_THREADS);
    }
    return 0;
}

static bool names_cpu(const char *controllers) {
    for (size_t length;; controllers += length + 1) {
        length = strcspn(controllers, ",");
        if (length == 3 && memcmp(controllers, "cpu", 3) == 0)
            return true;
        if (!controllers[length])
            return false;
    }
}

int hc_quota_processors(const char *groups, const char *mount) {
    int least = 0;
    char line[LONGEST_PATH];
    FILE *const file = fopen(groups, "re");
    while (file && fgets(line, sizeof line, file)) { /* number:controllers:/path */
        line[strcspn(line, "\n")] = '\0';
        char *const controllers = strchr(line, ':');
        char *const path = controllers ? strchr(controllers + 1, ':') : NULL;
        if (!path)
            continue;
        *path = '\0';
        const bool is_second = controllers[1] == '\0';
        if (!is_second && !names_cpu(controllers + 1))
            continue;
        char folder[2 * LONGEST_PATH];
        const size_t root = (size_t)snprintf(folder, LONGEST_PATH, "%s%s", mount, is_second ? "" : "/cpu");
        snprintf(folder + root, LONGEST_PATH, "%s", path + 1);
        /* Parent groups can have a quota, too. In a container the path may not exist; the mount is then the process's
         * own group. */
        for (char *end = folder + strlen(folder); end; end = strrchr(folder + root, '/')) {
            *end = '\0';
            const int quota = quota_of(folder);
            if (quota && (!least || quota < least))
                least = quota;
        }
    }
    if (file)
        fclose(file);
    return least;
}

int hc_platform_processors(void) {
    static _Atomic int known = -1; /* a quota is read once; two threads may both read it */
    int quota = atomic_load(&known);
    if (quota < 0)
        atomic_store(&known, quota = hc_quota_processors("/proc/self/cgroup", "/sys/fs/cgroup"));
    uint64_t mask[128]; /* the library call compares this with the number of processors of the kernel */
    const long bytes = syscall(SYS_sched_getaffinity, 0, sizeof mask, mask);
    long count = 0;
    for (long i = 0; i < bytes / (long)sizeof *mask; i++)
        for (uint64_t rest = mask[i]; rest; rest &= rest - 1)
            count++;
    count = count > 0 ? count : sysconf(_SC_NPROCESSORS_ONLN);
    return (int)(quota && quota < count ? quota : count);
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
    const unsigned long has_identity = 1ul << 11; /* HWCAP_CPUID: the system allows reading the register */
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
