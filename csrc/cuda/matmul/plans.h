/* Shared by the planners of matmuls. */
#ifndef HC_CUDA_MATMUL_PLANS_H
#define HC_CUDA_MATMUL_PLANS_H

#include "cuda/steps.h"

enum {
    HC_CUDA_MOST_ROWS = 65535 * 32,        /* of w: the second size of a grid times the fewest columns of a block */
    HC_CUDA_STEP_BYTES = 64,               /* of a row of bytes that a stage holds */
    HC_CUDA_LARGE_SHARED_BYTES = 99 << 10, /* which all devices have */
    HC_CUDA_H100_MULTIPROCESSORS = 132
};

static inline int hc_cuda_multiprocessors_of(const hc_cuda_plan *plan) {
    return plan->multiprocessors ? plan->multiprocessors : HC_CUDA_H100_MULTIPROCESSORS;
}

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

/* x as float values, in the order that their number of rows and the format of w have. */
hc_status hc_cuda_plan_floats(const hc_view *x, const hc_packed *packed, const float *bias, const hc_view *out,
                              void *workspace, hc_cuda_plan *plan, hc_error *error);

#endif
