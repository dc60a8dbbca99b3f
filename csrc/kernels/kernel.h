/* The kernels: each family has one typedef, one equation and one overflow budget, in the header of its folder. A kernel
 * never allocates, schedules, fails or prints. Sizes are valid, and panels are padded with zeros to full mr, nr and kr.
 * families.def lists the families with their types. The .def file of a folder lists its kernels, HC_KERNEL, each with its
 * properties. Every ISA gives the bits of the scalar kernel.
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
#include "kernels/pointwise/pointwise.h"
#include "kernels/ptq/ptq.h"
#include "kernels/rows/rows.h"
#include "kernels/sparse/nm.h"
#include "kernels/training/training.h"

/* A function hc_<family>_<isa> has its family's type: another signature does not compile. Which of them exist is in the
 * lists of kernels, which kernels.c alone reads: a line there compiles kernels.c. */
#define HC_FAMILY(name, type)                                                                                          \
    typedef type hc_##name##_family;                                                                                   \
    hc_##name##_family hc_##name##_scalar, hc_##name##_avx2, hc_##name##_avxvnni, hc_##name##_avx512,                  \
        hc_##name##_avx512vnni, hc_##name##_avx512vbmi, hc_##name##_avx512bf16, hc_##name##_amx, hc_##name##_neon,     \
        hc_##name##_dotprod, hc_##name##_i8mm;
#include "kernels/families.def"
#undef HC_FAMILY

typedef enum {
#define HC_FAMILY(name, type) HC_FAMILY_##name,
#include "kernels/families.def"
#undef HC_FAMILY
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
    int small;    /* gemm_small_... accept up to this |b|; rows_s8 and gemv_scaled are faster up to
                  * this |w|; 0: never used for it */
    union {       /* the member for the family's type */
#define HC_FAMILY(name, type) hc_##name##_family *name;
#include "kernels/families.def"
#undef HC_FAMILY
    } fn;
} hc_kernel;

/* The best kernel of a family that the mask allows, and the best of those below a given one; if there is none, a kernel
 * whose functions are NULL. */
const hc_kernel *hc_kernel_best(hc_kernel_family family, uint32_t isa);
const hc_kernel *hc_kernel_below(const hc_kernel *kernel, uint32_t isa);

/* The same by name, and its function. A family that is not in families.def does not compile. */
#define HC_BEST(family, run) hc_kernel_best(HC_FAMILY_##family, (run)->isa)
#define HC_PICK(family, run) (HC_BEST(family, run)->fn.family)

/* All kernels of this build, for tests and benchmarks. */
const hc_kernel *hc_kernels(int *count);

#endif
