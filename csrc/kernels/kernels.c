/* The table of the .def files, and the selection. */
#include "kernels/kernel.h"

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

static const hc_kernel KERNELS[] = {
#define HC_FAMILY(name, type)
#define HC_LINE(of, suffix, ...)                                                                                       \
    {.family = HC_FAMILY_##of,                                                                                         \
     .name = #of,                                                                                                      \
     .isa = #suffix,                                                                                                   \
     .needs = NEEDS_##suffix,                                                                                          \
     .fn.of = hc_##of##_##suffix,                                                                                      \
     __VA_ARGS__},
#define HC_KERNEL(of, suffix, ...) HC_IF_##suffix(HC_LINE(of, suffix, __VA_ARGS__))
#include "kernels/kernels.def"
#undef HC_FAMILY
#undef HC_KERNEL
    {.family = HC_N_FAMILIES},
};
enum { N_KERNELS = sizeof KERNELS / sizeof *KERNELS - 1 };
static const hc_kernel *const NONE = KERNELS + N_KERNELS;

/* First entry of each family: one enumerator per entry, and one per family with the number of the next entry. */
enum {
#define HC_FAMILY(name, type) FIRST_##name, BEFORE_##name = FIRST_##name - 1,
#define HC_KERNEL(family, isa, ...) HC_IF_##isa(NUMBER_##family##_##isa, )
#include "kernels/kernels.def"
#undef HC_FAMILY
#undef HC_KERNEL
};
static const int16_t FIRST[HC_N_FAMILIES] = {
#define HC_FAMILY(name, type) FIRST_##name,
#define HC_KERNEL(family, isa, ...)
#include "kernels/kernels.def"
#undef HC_FAMILY
#undef HC_KERNEL
};

static const hc_kernel *from(const hc_kernel *kernel, hc_kernel_family family, uint32_t isa) {
    for (; kernel->family == family; kernel++)
        if (((kernel->needs | kernel->also) & ~isa) == 0)
            return kernel;
    return NONE;
}

const hc_kernel *hc_kernel_best(hc_kernel_family family, uint32_t isa) {
    HC_ASSUME(family < HC_N_FAMILIES);
    return from(KERNELS + FIRST[family], family, isa);
}

const hc_kernel *hc_kernel_below(const hc_kernel *kernel, uint32_t isa) {
    return kernel == NONE ? NONE : from(kernel + 1, kernel->family, isa);
}

const hc_kernel *hc_kernels(int *count) {
    *count = N_KERNELS;
    return KERNELS;
}
