/* Rows of a strided array of floats in the order of formats, and the addresses of their values (ops/codec/rows.h makes
 * and moves them).
 *
 * Row r is one index of the axes that are not reduced, in C order. Run u of it starts at padded column u * padded_run
 * and holds run_length values, and then padding.
 */
#ifndef HC_ROW_VIEW_H
#define HC_ROW_VIEW_H

#include "base/packed.h"

/* Dimensions in C order, with neighbours merged if their strides allow it; strides in bytes. */
typedef struct {
    int n;
    int64_t shape[HC_MAX_DIMS], stride[HC_MAX_DIMS];
} hc_dims;

typedef struct {
    char *data;
    hc_dtype dtype;
    hc_dims rows, runs;
    int64_t run_length, padded_run, column_stride;
} hc_row_view;

/* Byte offset of an index into dimensions in C order. A division of 64 bits is a hundred instructions on a CUDA device, whose
 * kernels have fewer than 2^32 rows, runs and columns. */
#ifdef __CUDACC__
#define HC_INDEX uint32_t
#else
#define HC_INDEX int64_t
#endif
static inline int64_t hc_dims_offset(const hc_dims *dims, int64_t index) {
    int64_t offset = 0;
#ifdef __CUDACC__
#pragma unroll 1
#endif
    for (int i = dims->n - 1; i > 0; i--) {
        const HC_INDEX rest = (HC_INDEX)index / (HC_INDEX)dims->shape[i];
        offset += (index - (int64_t)rest * dims->shape[i]) * dims->stride[i];
        index = rest;
    }
    return dims->n ? offset + index * dims->stride[0] : 0;
}

/* Byte offset of a row's value; `column` is not padding. */
static inline int64_t hc_rows_offset(const hc_row_view *view, int64_t row, int64_t column) {
    return hc_dims_offset(&view->rows, row) + hc_dims_offset(&view->runs, column / view->padded_run) +
           column % view->padded_run * view->column_stride;
}

#endif
