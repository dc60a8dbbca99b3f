/* Rows of views and of packed arrays as sources (product.h). */
#include "ops/product/operand.h"

#include "ops/product/packed_rows.h"
#include "ops/product/sparse.h"

#include "base/convert.h"
#include "ops/codec/rows.h"

#include <string.h>

static inline float read_float(const char *data, hc_dtype dtype) {
    switch (dtype) {
    case HC_F32: {
        float value;
        memcpy(&value, data, sizeof value);
        return value;
    }
    case HC_F64: {
        double value;
        memcpy(&value, data, sizeof value);
        return (float)value;
    }
    default: {
        uint16_t bits;
        memcpy(&bits, data, sizeof bits);
        return dtype == HC_F16 ? hc_f16_to_f32(bits) : hc_bf16_to_f32(bits);
    }
    }
}

/* Adjacent values of 16 bits, anywhere in memory. */
static void read_halves(const char *data, hc_dtype dtype, int64_t count, float *restrict values) {
    enum { PART = 256 };
    uint16_t part[PART];
    if ((uintptr_t)data % sizeof *part == 0) {
        hc_widen_run((const uint16_t *)(const void *)data, dtype, count, values);
        return;
    }
    for (int64_t i = 0; i < count; i += PART) {
        const int64_t n = hc_min(PART, count - i);
        memcpy(part, data + i * (int64_t)sizeof *part, (size_t)n * sizeof *part);
        hc_widen_run(part, dtype, n, values + i);
    }
}

void hc_read_floats(const char *data, hc_dtype dtype, int64_t stride, int64_t count, float *values) {
    if (dtype == HC_F32 && stride == sizeof(float))
        memcpy(values, data, (size_t)count * sizeof(float));
    else if (dtype == HC_F32)
        for (int64_t i = 0; i < count; i++)
            memcpy(&values[i], data + i * stride, sizeof(float));
    else if (dtype != HC_F64 && stride == sizeof(uint16_t))
        read_halves(data, dtype, count, values);
    else
        for (int64_t i = 0; i < count; i++)
            values[i] = read_float(data + i * stride, dtype);
}

static void dense_floats(const hc_source *source, int64_t first_row, int64_t rows, int64_t first_column,
                         int64_t columns, float *values, int64_t ld) {
    const hc_dense_context *dense = source->context;
    const int last = dense->n_column_dims - 1;
    const int64_t run = dense->column_shape[last], stride = dense->column_stride[last];
    if (last == 0 && (stride > 64 || stride < -64)) {
        /* Columns are far apart in memory and rows are near: for each column walk a block of rows, so that each cache
         * line is used entirely. */
        const char *row_data[64];
        for (int64_t r0 = 0; r0 < rows; r0 += 64) {
            const int64_t block = hc_min(64, rows - r0);
            for (int64_t r = 0; r < block; r++)
                row_data[r] = hc_row(&dense->rows, first_row + r0 + r);
            for (int64_t c = 0; c < columns; c++)
                for (int64_t r = 0; r < block; r++)
                    values[(r0 + r) * ld + c] = read_float(row_data[r] + (first_column + c) * stride, dense->dtype);
        }
        return;
    }
    for (int64_t r = 0; r < rows; r++) {
        const char *row = hc_row(&dense->rows, first_row + r);
        for (int64_t c = 0; c < columns;) {
            int64_t index = first_column + c;
            const int64_t inner = index % run, count = hc_min(run - inner, columns - c);
            const char *data = row + inner * stride;
            index /= run;
            for (int i = last - 1; i >= 0; i--) {
                data += index % dense->column_shape[i] * dense->column_stride[i];
                index /= dense->column_shape[i];
            }
            hc_read_floats(data, dense->dtype, stride, count, values + r * ld + c);
            c += count;
        }
    }
}

void hc_dense_source(hc_source *source, const hc_dense_context *context) {
    int64_t columns = 1;
    for (int i = 0; i < context->n_column_dims; i++)
        columns *= context->column_shape[i];
    *source = (hc_source){.rows = context->rows.rows,
                          .columns = columns,
                          .floats = dense_floats,
                          .runs = 1,
                          .run_length = columns,
                          .context = context};
    if (context->dtype != HC_F32 || context->n_column_dims != 1)
        return;
    const hc_rows *r = &context->rows;
    hc_rows merged;
    if (r->n_dims > 1) {
        merged = hc_merged_rows(r);
        r = &merged;
    }
    if (r->n_dims == 1 && r->stride[0] == sizeof(float)) {
        source->side = hc_row(r, 0);
        source->side_stride = context->column_stride[0];
    }
    if (r->n_dims <= 1 && (context->column_stride[0] == sizeof(float) || columns == 1)) {
        source->along = hc_row(r, 0);
        source->along_stride = r->n_dims ? r->stride[0] : columns * (int64_t)sizeof(float);
    }
}

void hc_packed_source(hc_source *source, const hc_packed_context *context, int64_t rows) {
    const hc_geometry *g = context->geometry;
    const hc_format *format = context->format;
    const hc_format_ops *ops = hc_format_find(format->family);
    const bool is_sparse = format->m > 0;
    const int64_t group = is_sparse ? g->group / format->n * format->m : g->group;
    *source = (hc_source){.rows = rows,
                          .columns = g->whole_columns,
                          .floats = is_sparse ? hc_sparse_floats : hc_packed_floats,
                          .runs = g->runs,
                          .run_length = g->whole_length,
                          .group = format->group ? group : 0,
                          .context = context,
                          .sparse = is_sparse ? context : NULL};
    if (ops->decode_int) {
        source->integers = is_sparse ? hc_sparse_integers : hc_packed_integers;
        ops->int_form(format, HC_INT_FOLDED, &source->form[HC_INT_FOLDED]);
        ops->int_form(format, HC_INT_GROUPED, &source->form[HC_INT_GROUPED]);
        if (ops->splits && !is_sparse)
            ops->int_form(format, HC_INT_SPLIT, &source->form[HC_INT_SPLIT]);
    }
}
