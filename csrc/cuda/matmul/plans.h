/* Shared by the planners of matmuls. */
#ifndef HC_CUDA_MATMUL_PLANS_H
#define HC_CUDA_MATMUL_PLANS_H

#include "cuda/paths.h"

enum {
    HC_CUDA_MOST_ROWS = 65535 * 32,       /* of w: the second size of a grid times the fewest columns of a block */
    HC_CUDA_FEW_STEP = 128,               /* bytes or columns of few rows of x */
    HC_CUDA_LARGE_SHARED_BYTES = 99 << 10 /* which all devices have */
};

static inline hc_cuda_gemm hc_cuda_gemm_of(const hc_view *out) {
    hc_cuda_gemm gemm = {.y = out->data};
    gemm.y_row = out->ndim > 1 ? out->strides[out->ndim - 2] : 0;
    gemm.y_column = out->strides[out->ndim - 1];
    return gemm;
}

/* The rows of `out` at one stride. */
static inline bool hc_cuda_has_even_rows(const hc_view *out) {
    for (int i = out->ndim - 3; i >= 0; i--)
        if (out->shape[i] > 1 && out->strides[i] != out->strides[i + 1] * out->shape[i + 1])
            return false;
    return true;
}

/* Rounds of blocks on the multiprocessors, each with one. */
static inline int64_t hc_cuda_rounds(const hc_cuda_product *p, const hc_cuda_path *path) {
    return hc_ceil_div(hc_ceil_div(p->m, path->rows) * hc_ceil_div(p->n, path->columns), p->at_once);
}
/* Bytes of a row of x. */
static inline int64_t hc_cuda_ld_of(const hc_cuda_product *p, const hc_cuda_path *path) {
    return path->reads_pieces ? hc_round_up(p->form.length, HC_CUDA_FEW_STEP) : p->form.ld;
}
/* Why the device has no code of a path, or the path does not read w as it lies; or NULL. */
const char *hc_cuda_unreadable(const hc_cuda_product *p, const hc_cuda_path *path);
/* The parameters of a step, by what the path reads. */
void hc_cuda_set_gemm(const hc_cuda_product *p, const hc_cuda_path *path, int w_warps, hc_cuda_step *step);

/* x are float values: the order of sums depends on their number of rows and the format of w. */
hc_status hc_cuda_plan_floats(const hc_view *x, const hc_packed *packed, const float *bias, const hc_view *out,
                              hc_cuda_plan *plan, hc_error *error);

#endif
