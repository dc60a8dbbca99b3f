/* CPU features: for x86 by cpuid and xgetbv, where a feature counts only if the operating system saves its registers;
 * for ARM from the operating system. */
#include "base/cpu.h"
#include "base/platform/platform.h"

#include <stdatomic.h>
#include <string.h>

static const struct {
    const char *name;
    uint32_t bit, implied;
} ISA_NAMES[] = {
    {"scalar", 0, 0},
    {"avx2", HC_ISA_AVX2, 0},
    {"avxvnni", HC_ISA_AVXVNNI, HC_ISA_AVX2},
    {"avx512", HC_ISA_AVX512, HC_ISA_AVX2},
    {"avx512vnni", HC_ISA_AVX512VNNI, HC_ISA_AVX512 | HC_ISA_AVX2},
    {"avx512vbmi", HC_ISA_AVX512VBMI, HC_ISA_AVX512 | HC_ISA_AVX2},
    {"avx512bf16", HC_ISA_AVX512BF16, HC_ISA_AVX512 | HC_ISA_AVX2},
    {"amx", HC_ISA_AMX, HC_ISA_AVX512VNNI | HC_ISA_AVX512 | HC_ISA_AVXVNNI | HC_ISA_AVX2},
    {"neon", HC_ISA_NEON, 0},
    {"dotprod", HC_ISA_DOTPROD, HC_ISA_NEON},
    {"i8mm", HC_ISA_I8MM, HC_ISA_DOTPROD | HC_ISA_NEON},
};

bool hc_isa_from_name(const char *name, uint32_t *mask) {
    for (size_t i = 0; i < sizeof ISA_NAMES / sizeof *ISA_NAMES; i++)
        if (strcmp(name, ISA_NAMES[i].name) == 0) {
            *mask = ISA_NAMES[i].bit | ISA_NAMES[i].implied;
            return true;
        }
    return false;
}

const char *hc_isa_name(uint32_t bit) {
    for (size_t i = 0; i < sizeof ISA_NAMES / sizeof *ISA_NAMES; i++)
        if (ISA_NAMES[i].bit == bit)
            return ISA_NAMES[i].name;
    return "?";
}

#if HC_X86

#include <cpuid.h>

static uint64_t read_xcr0(void) {
    uint32_t low, high;
    __asm__ volatile("xgetbv" : "=a"(low), "=d"(high) : "c"(0));
    return ((uint64_t)high << 32) | low;
}

static uint32_t detect(void) {
    uint32_t a, b, c, d, isa = 0;
    if (!__get_cpuid(1, &a, &b, &c, &d))
        return 0;
    const bool fma = c >> 12 & 1, osxsave = c >> 27 & 1, avx = c >> 28 & 1, f16c = c >> 29 & 1;
    if (!osxsave || !avx)
        return 0;
    const uint64_t xcr0 = read_xcr0();
    if ((xcr0 & 0x6) != 0x6 || !__get_cpuid_count(7, 0, &a, &b, &c, &d))
        return 0;
    const uint32_t sub_leaves = a, leaf7b = b, leaf7c = c, leaf7d = d;
    if (fma && f16c && (leaf7b >> 5 & 1) && (leaf7b >> 8 & 1))
        isa |= HC_ISA_AVX2;
    uint32_t leaf71a = 0;
    if (sub_leaves >= 1 && __get_cpuid_count(7, 1, &a, &b, &c, &d))
        leaf71a = a;
    if ((isa & HC_ISA_AVX2) && (leaf71a >> 4 & 1))
        isa |= HC_ISA_AVXVNNI;
    const uint32_t avx512 = 1u << 16 | 1u << 17 | 1u << 28 | 1u << 30 | 1u << 31; /* F DQ CD BW VL */
    if ((isa & HC_ISA_AVX2) && (xcr0 & 0xe6) == 0xe6 && (leaf7b & avx512) == avx512) {
        isa |= HC_ISA_AVX512;
        if (leaf7c >> 11 & 1)
            isa |= HC_ISA_AVX512VNNI;
        if (leaf7c >> 1 & 1)
            isa |= HC_ISA_AVX512VBMI;
        if (leaf71a >> 5 & 1)
            isa |= HC_ISA_AVX512BF16;
    }
    const uint32_t amx = 1u << 22 | 1u << 24 | 1u << 25; /* BF16 TILE INT8 */
    const uint32_t under_amx = HC_ISA_AVX512VNNI | HC_ISA_AVXVNNI;
    if ((isa & under_amx) == under_amx && (leaf7d & amx) == amx && (xcr0 >> 17 & 3) == 3 && hc_request_amx())
        isa |= HC_ISA_AMX;
    return isa;
}

static uint32_t processor(void) {
    uint32_t a, b, c, d;
    if (!__get_cpuid(0, &a, &b, &c, &d))
        return 0;
    const int vendor = b == signature_AMD_ebx ? HC_AMD : b == signature_INTEL_ebx ? HC_INTEL : 0;
    if (!vendor || !__get_cpuid(1, &a, &b, &c, &d))
        return 0;
    const uint32_t base = a >> 8 & 0xf, family = base == 0xf ? base + (a >> 20 & 0xff) : base;
    const uint32_t model = (a >> 4 & 0xf) | (a >> 12 & 0xf0);
    return HC_PROCESSOR(vendor, family, vendor == HC_INTEL ? model : 0);
}

#elif HC_ARM

static uint32_t detect(void) { return hc_arm_isa(); }
static uint32_t processor(void) { return hc_arm_processor(); }

#else

static uint32_t detect(void) { return 0; }
static uint32_t processor(void) { return 0; }

#endif

uint32_t hc_cpu_isa(void) {
    static _Atomic uint32_t found; /* two threads may both detect: they find the same. The top bit says "found". */
    uint32_t isa = atomic_load(&found);
    if (!isa)
        atomic_store(&found, isa = detect() | 1u << 31);
    return isa & ~(1u << 31);
}

uint32_t hc_cpu_processor(void) {
    static _Atomic uint64_t found; /* as above */
    uint64_t kind = atomic_load(&found);
    if (!kind)
        atomic_store(&found, kind = processor() | (uint64_t)1 << 32);
    return (uint32_t)kind;
}

int hc_processors(void) { return (int)hc_max(1, hc_min(hc_platform_processors(), HC_MAX_THREADS)); }

int hc_threads_for(int wanted, double work) {
    enum { FEW = 1 << 20 };
    return wanted > 0 ? wanted : work < FEW ? 1 : hc_processors();
}
