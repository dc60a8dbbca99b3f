/* Rows of views and of packed arrays, as the product drivers take them. */
#include "ops/product/operand.h"

#include "ops/product/sparse.h"

#include "base/convert.h"

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

void hc_read_floats(const char *data, hc_dtype dtype, int64_t stride, int64_t count, float *values) {
    if (dtype == HC_F32 && stride == sizeof(float))
        memcpy(values, data, (size_t)count * sizeof(float));
    else if (dtype == HC_F32)
        for (int64_t i = 0; i < count; i++)
            memcpy(&values[i], data + i * stride, sizeof(float));
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
        /* Columns lie far apart and rows near: walk a block of rows for each column, so that a line is used whole. */
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
    const hc_rows *r = &context->rows;
    if (context->dtype == HC_F32 && context->n_column_dims == 1 && r->n_dims == 1 && r->stride[0] == sizeof(float)) {
        source->side = hc_row(r, 0);
        source->side_stride = context->column_stride[0];
    }
    if (context->dtype == HC_F32 && context->n_column_dims == 1 && r->n_dims == 1 &&
        context->column_stride[0] == sizeof(float)) {
        source->along = hc_row(r, 0);
        source->along_stride = r->stride[0];
    }
}

/* Calls `part` for every run that the columns touch: padded columns [tile.first_column, ..) hold them from `skip` on,
 * and they go to the answer's column `to`. */
typedef struct {
    hc_tile tile;
    int64_t skip, to, count;
} hc_run_part;

static bool next_part(const hc_packed_context *packed, int64_t first_column, int64_t columns, hc_run_part *part) {
    const hc_geometry *g = packed->geometry;
    part->to += part->count;
    if (part->to >= columns)
        return false;
    const bool by_runs = packed->format->group || g->padded != g->columns;
    const int64_t length = by_runs ? g->run_length : g->columns;
    const int64_t column = first_column + part->to, run = column / length, inside = column % length;
    const int64_t run_padded = by_runs ? g->groups_per_run * g->group : g->columns;
    const int64_t padded = run * run_padded + inside;
    part->count = hc_min(length - inside, columns - part->to);
    part->tile.first_column = padded & ~(int64_t)7;
    part->skip = padded - part->tile.first_column;
    part->tile.columns = part->skip + part->count;
    return true;
}

void hc_packed_floats(const hc_source *source, int64_t first_row, int64_t rows, int64_t first_column, int64_t columns,
                      float *values, int64_t ld) {
    const hc_packed_context *packed = source->context;
    hc_run_part part = {.tile = {.first_row = packed->first_row + first_row, .rows = rows}};
    while (next_part(packed, first_column, columns, &part)) {
        if (part.skip == 0) {
            hc_decode_tile(packed->run, packed->format, packed->geometry, packed->components, &part.tile,
                           values + part.to, ld);
            continue;
        }
        /* A start that is no byte: decode piece by piece through a small buffer. */
        enum { PIECE = 512 };
        float piece[PIECE];
        for (int64_t r = 0; r < rows; r++)
            for (int64_t c = 0; c < part.tile.columns; c += PIECE) {
                const hc_tile tile = {part.tile.first_row + r, 1, part.tile.first_column + c,
                                      hc_min(PIECE, part.tile.columns - c)};
                hc_decode_tile(packed->run, packed->format, packed->geometry, packed->components, &tile, piece, PIECE);
                const int64_t from = c == 0 ? part.skip : 0;
                memcpy(values + r * ld + part.to + c + from - part.skip, piece + from,
                       (size_t)(tile.columns - from) * sizeof *piece);
            }
    }
}

void hc_packed_integers(const hc_source *source, hc_int_mode mode, int64_t first_row, int64_t rows,
                        int64_t first_column, int64_t columns, const hc_int_tile *out) {
    const hc_packed_context *packed = source->context;
    const int n_limbs = source->form[mode].n_limbs;
    hc_run_part part = {.tile = {.first_row = packed->first_row + first_row, .rows = rows}};
    int64_t group = 0;
    while (next_part(packed, first_column, columns, &part)) {
        hc_int_tile tile = *out;
        tile.group_scale = out->group_scale ? out->group_scale + group : NULL;
        for (int i = 0; i < n_limbs; i++)
            tile.limb[i] = out->limb[i] + part.to;
        if (part.skip == 0) {
            hc_decode_int_tile(packed->run, packed->format, packed->geometry, packed->components, &part.tile, mode,
                               &tile);
        } else {
            enum { PIECE = 1024 };
            int8_t piece[3][PIECE];
            const int64_t effective = packed->geometry->group;
            for (int64_t r = 0; r < rows; r++)
                for (int64_t c = 0; c < part.tile.columns; c += PIECE) {
                    const hc_tile one = {part.tile.first_row + r, 1, part.tile.first_column + c,
                                         hc_min(PIECE, part.tile.columns - c)};
                    float scales[PIECE + 1];
                    hc_int_tile small = {.limb = {piece[0], piece[1], piece[2]},
                                         .ld = PIECE,
                                         .group_scale = scales,
                                         .groups_ld = PIECE + 1,
                                         .row_scale = out->row_scale ? out->row_scale + r : NULL};
                    hc_decode_int_tile(packed->run, packed->format, packed->geometry, packed->components, &one, mode,
                                       &small);
                    const int64_t from = c == 0 ? part.skip : 0;
                    for (int i = 0; i < n_limbs; i++)
                        memcpy(tile.limb[i] + r * out->ld + c + from - part.skip, piece[i] + from,
                               (size_t)(one.columns - from));
                    if (!out->group_scale)
                        continue;
                    /* Groups that only the skipped columns touch are not the caller's. */
                    const int64_t wanted = (part.tile.first_column + part.skip) / effective;
                    const int64_t first = one.first_column / effective;
                    const int64_t last = (one.first_column + one.columns - 1) / effective;
                    for (int64_t g = hc_max(first, wanted); g <= last; g++)
                        tile.group_scale[r * out->groups_ld + g - wanted] = scales[g - first];
                }
        }
        if (packed->format->group)
            group += hc_ceil_div(part.count, packed->geometry->group); /* parts start at group boundaries */
    }
}

void hc_packed_source(hc_source *source, const hc_packed_context *context, int64_t rows) {
    if (context->format->m > 0) {
        hc_sparse_source(source, context, rows);
        return;
    }
    const hc_format_ops *ops = hc_format_find(context->format->family);
    *source = (hc_source){.rows = rows,
                          .columns = context->geometry->columns,
                          .floats = hc_packed_floats,
                          .runs = context->geometry->runs,
                          .run_length = context->geometry->run_length,
                          .group = context->format->group ? context->geometry->group : 0,
                          .context = context};
    if (ops->decode_int) {
        source->integers = hc_packed_integers;
        ops->int_form(context->format, HC_INT_FOLDED, &source->form[HC_INT_FOLDED]);
        ops->int_form(context->format, HC_INT_GROUPED, &source->form[HC_INT_GROUPED]);
    }
}
