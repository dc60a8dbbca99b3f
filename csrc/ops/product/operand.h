/* Two kinds of source: rows of a view, rows of a packed array. (ops/conv/windows.c adds the windows of an image.) */
#ifndef HC_SOURCES_H
#define HC_SOURCES_H

#include "ops/product/product.h"

/* `count` values of any float type, `stride` bytes apart. */
void hc_read_floats(const char *data, hc_dtype dtype, int64_t stride, int64_t count, float *values);

/* Rows of a float view: rows over any dimensions, columns over up to three (r, s, c of a filter). */
typedef struct {
    hc_rows rows;
    hc_dtype dtype;
    int n_column_dims;
    int64_t column_shape[3], column_stride[3]; /* bytes; C order */
} hc_dense_context;
void hc_dense_source(hc_source *source, const hc_dense_context *context);

/* Rows [first_row, first_row + rows) of a packed array. */
void hc_packed_source(hc_source *source, const hc_packed_context *context, int64_t rows);

#endif
