/* The table of the .def files, and the selection. */
#include "kernels/kernel.h"

/* An instruction set is in a .def file on every machine; its kernels exist only where the set does. */
#if HC_X86
#define IF_avx2(...) __VA_ARGS__
#else
#define IF_avx2(...)
#endif
#define IF_avxvnni IF_avx2
#define IF_avx512 IF_avx2
#define IF_avx512vnni IF_avx2
#define IF_avx512vbmi IF_avx2
#define IF_avx512bf16 IF_avx2
#define IF_amx IF_avx2
#if HC_ARM
#define IF_neon(...) __VA_ARGS__
#else
#define IF_neon(...)
#endif
#define IF_dotprod IF_neon
#define IF_i8mm IF_neon
#define IF_scalar(...) __VA_ARGS__

#define NEEDS_scalar 0
#define NEEDS_avx2 HC_ISA_AVX2
#define NEEDS_avxvnni (HC_ISA_AVXVNNI | HC_ISA_AVX2)
#define NEEDS_avx512 (HC_ISA_AVX512 | HC_ISA_AVX2)
#define NEEDS_avx512vnni (HC_ISA_AVX512VNNI | NEEDS_avx512)
#define NEEDS_avx512vbmi (HC_ISA_AVX512VBMI | NEEDS_avx512)
#define NEEDS_avx512bf16 (HC_ISA_AVX512BF16 | NEEDS_avx512)
#define NEEDS_amx (HC_ISA_AMX | HC_ISA_AVXVNNI | NEEDS_avx512vnni)
#define NEEDS_neon HC_ISA_NEON
#define NEEDS_dotprod (HC_ISA_DOTPROD | HC_ISA_NEON)
#define NEEDS_i8mm (HC_ISA_I8MM | NEEDS_dotprod)

/* The instruction sets, best first: the order in which the kernels of a family are tried. */
enum {
    SET_amx,
    SET_avx512vbmi,
    SET_avx512bf16,
    SET_avx512vnni,
    SET_avxvnni,
    SET_avx512,
    SET_avx2,
    SET_i8mm,
    SET_dotprod,
    SET_neon,
    SET_scalar,
    N_SETS
};

/* The number of each kernel in KERNELS; 0 is none. */
enum {
    NUMBER_NONE,
#define HC_KERNEL(of, suffix, ...) IF_##suffix(NUMBER_##of##_##suffix, )
#include "kernels/kernels.def"
#undef HC_KERNEL
    N_NUMBERS
};
static const int16_t NUMBER[HC_N_FAMILIES + 1][N_SETS] = {
#define HC_KERNEL(of, suffix, ...) IF_##suffix([HC_FAMILY_##of][SET_##suffix] = NUMBER_##of##_##suffix, )
#include "kernels/kernels.def"
#undef HC_KERNEL
};
static const hc_kernel KERNELS[] = {
    {.family = HC_N_FAMILIES},
#define HC_LINE(of, suffix, ...)                                                                                       \
    {.family = HC_FAMILY_##of,                                                                                         \
     .name = #of,                                                                                                      \
     .isa = #suffix,                                                                                                   \
     .needs = NEEDS_##suffix,                                                                                          \
     .fn.of = hc_##of##_##suffix,                                                                                      \
     __VA_ARGS__},
#define HC_KERNEL(of, suffix, ...) IF_##suffix(HC_LINE(of, suffix, __VA_ARGS__))
#include "kernels/kernels.def"
#undef HC_KERNEL
};

static const hc_kernel *from(int set, hc_kernel_family family, uint32_t isa) {
    for (; set < N_SETS; set++) {
        const hc_kernel *kernel = KERNELS + NUMBER[family][set];
        if (kernel != KERNELS && ((kernel->needs | kernel->also) & ~isa) == 0)
            return kernel;
    }
    return KERNELS;
}

const hc_kernel *hc_kernel_best(hc_kernel_family family, uint32_t isa) {
    HC_ASSUME(family < HC_N_FAMILIES);
    return from(0, family, isa);
}

const hc_kernel *hc_kernel_below(const hc_kernel *kernel, uint32_t isa) {
    int set = 0;
    while (KERNELS + NUMBER[kernel->family][set] != kernel)
        set++;
    return from(set + 1, kernel->family, isa);
}

const hc_kernel *hc_kernels(int *count) {
    *count = N_NUMBERS - 1;
    return KERNELS + 1;
}
