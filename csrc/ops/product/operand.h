/* The sources that exist: rows of a view, rows of a packed array. (conv.c adds the windows of an image.) */
#ifndef HC_SOURCES_H
#define HC_SOURCES_H

#include "ops/codec/encoder.h"
#include "ops/product/source.h"

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
typedef struct {
    const hc_run *run;
    const hc_format *format;
    const hc_geometry *geometry;
    const hc_components *components;
    int64_t first_row;
} hc_packed_context;
void hc_packed_source(hc_source *source, const hc_packed_context *context, int64_t rows);

/* Its two functions; where the format keeps n of every m, columns here are the kept ones. */
void hc_packed_floats(const hc_source *source, int64_t first_row, int64_t rows, int64_t first_column, int64_t columns,
                      float *values, int64_t ld);
void hc_packed_integers(const hc_source *source, hc_int_mode mode, int64_t first_row, int64_t rows,
                        int64_t first_column, int64_t columns, const hc_int_tile *out);

#endif
