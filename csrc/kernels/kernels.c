/* The table of kernels.def, and the pick. */
#include "kernels/kernel.h"

#define HC_KERNEL(family, isa, mr, nr, kr, form) extern void hc_##family##_##isa(void);
#include "kernels/kernels.def"
#undef HC_KERNEL

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

static const hc_kernel KERNELS[] = {
#define HC_KERNEL(family, isa, mr, nr, kr, form) {#family, #isa, NEEDS_##isa, mr, nr, kr, form, hc_##family##_##isa},
#include "kernels/kernels.def"
#undef HC_KERNEL
    {NULL, NULL, 0, 0, 0, 0, 0, NULL},
};

static inline bool is_same(const char *a, const char *b) { /* most differ early: a call of strcmp takes longer */
    for (; *a == *b; a++, b++)
        if (!*a)
            return true;
    return false;
}

const hc_kernel *hc_kernel_pick(const char *family, uint32_t isa, const hc_kernel *after) {
    for (const hc_kernel *kernel = after ? after + 1 : KERNELS; kernel->family; kernel++)
        if ((kernel->needs & ~isa) == 0 && is_same(kernel->family, family))
            return kernel;
    return NULL;
}

const hc_kernel *hc_kernels(int *count) {
    *count = (int)(sizeof KERNELS / sizeof *KERNELS) - 1;
    return KERNELS;
}
