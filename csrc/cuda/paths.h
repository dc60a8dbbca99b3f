/* One path per matmul or convolution of a device, as ops/product/plan.h has for the CPU. paths.def has a section for each order of sums;
 * all paths of a section give the same bits. The plan is the path of the section with the smallest estimate among the
 * paths that do not refuse; hc_cuda_choose is the only place that chooses.
 *
 * An estimate is the sum of counts of work times the costs of an architecture (costs/). Costs hold for a number of rows of x,
 * or of filters of a convolution: outside it, a path is chosen if all others refuse, or have no costs for so many rows either.
 */
#ifndef HC_CUDA_PATHS_H
#define HC_CUDA_PATHS_H

#include "cuda/weights.h"

/* FOLDED, GROUPED, GEMV and CHAIN: the orders of ops/product/product.h. DEVICE: that of the matrix units. CONV: over (r, s, c). */
typedef enum {
    HC_CUDA_FOLDED,
    HC_CUDA_GROUPED,
    HC_CUDA_GEMV,
    HC_CUDA_CHAIN,
    HC_CUDA_DEVICE,
    HC_CUDA_CONV_FOLDED,
    HC_CUDA_CONV_GROUPED,
    HC_CUDA_CONV_CHAIN
} hc_cuda_section;
typedef enum { HC_CUDA_ANY, HC_CUDA_OF_90A, HC_CUDA_NOT_90A } hc_cuda_code;

/* The operands: of integers, x and w, their form and gemm; of floats, gemv or sgemm. Addresses are set before `add`. */
typedef struct {
    hc_cuda_section section;
    int architecture, at_once; /* at_once: multiprocessors */
    int64_t m, n;              /* rows of x and of w; of a convolution, filters of a group of channels, and windows */
    hc_cuda_side x, w;
    hc_cuda_form form;
    hc_cuda_gemm gemm;
    hc_cuda_made made; /* of w */
    bool is_kept;      /* w has a pattern, and x meets its nonzeros */
    int word_bits;     /* of a code that can be read by words, or 0 */
    int64_t columns;   /* of floats */
    hc_cuda_gemv gemv;
    hc_cuda_sgemm sgemm;
    const hc_cuda_conv *conv;
} hc_cuda_product;

typedef struct hc_cuda_path hc_cuda_path;
struct hc_cuda_path {
    hc_cuda_section section;
    const char *id;     /* its number's name: SECTION_symbol */
    const char *name;   /* shown by hc.explain; a call can force it */
    const char *what;   /* it does, a phrase */
    const char *module; /* and its kernel, of few rows also that of more; floats have those of a pattern second */
    const char *kernel[2];
    hc_cuda_code code;          /* the devices that the build has it for */
    hc_cuda_kind reads;         /* how w lies; HC_CUDA_BYTES: or HC_CUDA_STORED */
    bool reads_pieces;          /* whatever else is made of w, its codes of 4 bits are read by 16 bytes */
    bool interleaves;           /* x lies as kernels of these codes read it */
    bool expands;               /* codes become bytes first */
    bool is_wide;               /* multiplies limbs, and sums in 64 bits */
    int length;                 /* of all segments, which fill whole stages; 0: any */
    int rows, columns, threads; /* of a block: rows of x and of w */
    int stages, step, w_step;   /* step: bytes or columns of x in a stage of shared memory; w_step: bytes of w */
    int gap;                    /* bytes between rows of x in shared memory */
    const char *(*refuses)(const hc_cuda_product *p, const hc_cuda_path *path); /* NULL, or why */
    hc_cuda_work (*work)(const hc_cuda_product *p, const hc_cuda_path *path);
    void (*add)(hc_cuda_product *p, const hc_cuda_path *path, hc_cuda_plan *plan);
};

/* The device; all that a section does not use stays unset, as it is large. */
void hc_cuda_init_product(hc_cuda_product *p, const hc_cuda_plan *plan);
/* *path is the chosen one, or plan->path; HC_VALUE where a forced one refuses, HC_UNSUPPORTED where all do. Fills
 * plan->explanation. */
hc_status hc_cuda_choose(const hc_cuda_product *p, const hc_cuda_plan *plan, const hc_cuda_path **path,
                         hc_error *error);

#endif
