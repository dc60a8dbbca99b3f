/* The kernels: each family has one typedef, one equation and one overflow budget, in the header of its folder. A kernel
 * never allocates, schedules, fails or prints. Sizes are valid, and panels are padded with zeros to full mr, nr and kr.
 * In the .def file of a folder, HC_FAMILY names a family and its type. The lines after it, HC_KERNEL, are the kernels,
 * best first and scalar last, each with its properties. Every ISA gives the bits of the scalar kernel.
 */
#ifndef HC_KERNEL_H
#define HC_KERNEL_H

#include "base/cpu.h"
#include "kernels/clip/clip.h"
#include "kernels/compressed/compressed.h"
#include "kernels/conv/conv.h"
#include "kernels/gemm/gemm.h"
#include "kernels/gemv/gemv.h"
#include "kernels/layers/layers.h"
#include "kernels/peak/peak.h"
#include "kernels/ptq/ptq.h"
#include "kernels/rows/rows.h"
#include "kernels/sparse/nm.h"
#include "kernels/training/training.h"

/* An instruction set is in a .def file on every machine; its kernels exist only where the set does. */
#if HC_X86
#define HC_IF_avx2(...) __VA_ARGS__
#else
#define HC_IF_avx2(...)
#endif
#define HC_IF_avxvnni HC_IF_avx2
#define HC_IF_avx512 HC_IF_avx2
#define HC_IF_avx512vnni HC_IF_avx2
#define HC_IF_avx512vbmi HC_IF_avx2
#define HC_IF_avx512bf16 HC_IF_avx2
#define HC_IF_amx HC_IF_avx2
#if HC_ARM
#define HC_IF_neon(...) __VA_ARGS__
#else
#define HC_IF_neon(...)
#endif
#define HC_IF_dotprod HC_IF_neon
#define HC_IF_i8mm HC_IF_neon
#define HC_IF_scalar(...) __VA_ARGS__

/* Every kernel is declared with its family's type, so a kernel with another signature does not compile. */
#define HC_FAMILY(name, type) typedef type hc_##name##_family;
#define HC_KERNEL(family, isa, ...) HC_IF_##isa(hc_##family##_family hc_##family##_##isa;)
#include "kernels/kernels.def"
#undef HC_FAMILY
#undef HC_KERNEL

typedef enum {
#define HC_FAMILY(name, type) HC_FAMILY_##name,
#define HC_KERNEL(family, isa, ...)
#include "kernels/kernels.def"
#undef HC_FAMILY
#undef HC_KERNEL
    HC_N_FAMILIES
} hc_kernel_family;

typedef struct {
    hc_kernel_family family;
    const char *name, *isa; /* of the family; the suffix */
    uint32_t needs;
    uint32_t also; /* instruction sets that it needs besides its suffix */
    int mr, nr, kr;
    int form;     /* of the panel of a, HC_PANEL_... */
    int nonzeros; /* gemm_nm_s8: of kr */
    int small;    /* gemm_small_... accept up to this |b|; rows_s8 is faster up to this |w|; 0: never used for it */
    union {       /* the member for the family's type */
#define HC_FAMILY(name, type) hc_##name##_family *name;
#define HC_KERNEL(family, isa, ...)
#include "kernels/kernels.def"
#undef HC_FAMILY
#undef HC_KERNEL
    } fn;
} hc_kernel;

/* The best kernel of a family that the mask allows, and the best of those after a given one; if there is none, a kernel
 * whose functions are NULL. */
const hc_kernel *hc_kernel_best(hc_kernel_family family, uint32_t isa);
const hc_kernel *hc_kernel_below(const hc_kernel *kernel, uint32_t isa);

/* The same by name, and its function. A family that is in no .def file does not compile. */
#define HC_BEST(family, run) hc_kernel_best(HC_FAMILY_##family, (run)->isa)
#define HC_PICK(family, run) (HC_BEST(family, run)->fn.family)

/* All kernels of this build, for tests and benchmarks. */
const hc_kernel *hc_kernels(int *count);

#endif
