/* Gathering and scattering rows: pieces of one run with a constant stride between rows, in the loop order that uses
 * memory best. */
#include "ops/codec/rows.h"

#include "base/convert.h"
#include "kernels/kernel.h"

#include <stdlib.h>
#include <string.h>

/* Blocks of rows whose columns are far apart: four cache lines of float32 from each column, copied in squares. The
 * lines of the squares AHEAD columns later are prefetched, since in a large matrix every column is on another page. */
enum { ACROSS = 64, SQUARE = 16, AHEAD = 32 };

static void append_dim(hc_dims *dims, int64_t shape, int64_t stride) {
    if (shape == 1)
        return;
    if (dims->n > 0 && dims->stride[dims->n - 1] == shape * stride) {
        dims->shape[dims->n - 1] *= shape;
        dims->stride[dims->n - 1] = stride;
        return;
    }
    dims->shape[dims->n] = shape;
    dims->stride[dims->n++] = stride;
}

void hc_rows_init(hc_row_view *view, const hc_view *array, const hc_geometry *geometry, int n_axes, const int *axes) {
    bool reduced[HC_MAX_DIMS] = {false};
    *view = (hc_row_view){.data = array->data, .dtype = array->dtype};
    for (int i = 0; i < n_axes; i++)
        reduced[axes[i]] = true;
    for (int i = 0; i < array->ndim; i++)
        if (!reduced[i])
            append_dim(&view->rows, array->shape[i], array->strides[i]);
    for (int i = 0; i + 1 < n_axes; i++)
        append_dim(&view->runs, array->shape[axes[i]], array->strides[axes[i]]);
    const int last = axes[n_axes - 1];
    view->run_length = array->shape[last];
    view->column_stride = array->strides[last];
    view->padded_run =
        geometry->padded == geometry->columns ? view->run_length : geometry->groups_per_run * geometry->group;
    hc_dims *runs = &view->runs;
    if (view->padded_run == view->run_length) {
        /* without padding, neighbouring runs can be one run */
        if (view->run_length == 1 && runs->n > 0)
            view->column_stride = runs->stride[runs->n - 1];
        while (runs->n > 0 && (runs->stride[runs->n - 1] == view->run_length * view->column_stride)) {
            view->run_length *= runs->shape[--runs->n];
            view->padded_run = view->run_length;
        }
    }
}

bool hc_rows_direct(const hc_row_view *view, int64_t first_row, hc_float_rows *direct) {
    const int64_t size = hc_rows_size(view);
    const int64_t stride = view->rows.n ? view->rows.stride[0] : 0;
    if ((view->dtype != HC_F32 && view->dtype != HC_F64) || view->rows.n > 1 || view->runs.n > 0 ||
        view->padded_run != view->run_length || (view->column_stride != size && view->run_length > 1) ||
        stride % size != 0 || (uintptr_t)view->data % (uintptr_t)size != 0)
        return false;
    direct->data = view->data + first_row * stride;
    direct->dtype = view->dtype;
    direct->row_stride = stride / size;
    return true;
}

bool hc_rows_across(const hc_row_view *view) {
    return view->rows.n > 0 && llabs(view->rows.stride[view->rows.n - 1]) < llabs(view->column_stride);
}

/* A piece: rows x columns values, with constant strides in bytes on the side of the view and ld elements on the
 * other. */
typedef struct {
    char *array;
    int64_t rows, columns, row_stride, column_stride, ld;
    bool across;
} hc_piece;

static void fetch_ahead(const hc_piece *piece, int64_t column) {
    const int64_t last = (piece->rows - 1) * piece->row_stride;
    for (int64_t c = column + AHEAD; c < hc_min(column + AHEAD + SQUARE, piece->columns); c++) {
        const char *line = piece->array + c * piece->column_stride;
        for (int64_t byte = 0; byte < last; byte += HC_CACHE_LINE)
            __builtin_prefetch(line + byte, 0, 2);
        __builtin_prefetch(line + last, 0, 2); /* one more line if the array does not begin at a line */
    }
}

/* Rows that are neighbours in memory, in squares of 16 x 16. A cache line of each column is read entirely and once, since
 * columns a power of two apart share a cache set. Squares of float32 are transposed in registers, 16-bit floats once they
 * are float32. */
static void transpose_doubles(const hc_piece *piece, double *values, bool back) {
    for (int64_t c0 = 0; c0 < piece->columns; c0 += SQUARE) {
        const int64_t columns = hc_min(SQUARE, piece->columns - c0);
        fetch_ahead(piece, c0);
        for (int64_t r0 = 0; r0 < piece->rows; r0 += SQUARE) {
            const int64_t rows = hc_min(SQUARE, piece->rows - r0);
            double square[SQUARE][SQUARE];
            char *array = piece->array + r0 * 8 + c0 * piece->column_stride;
            double *to = values + r0 * piece->ld + c0;
            for (int64_t c = 0; c < columns && !back; c++)
                memcpy(square[c], array + c * piece->column_stride, (size_t)rows * 8);
            for (int64_t r = 0; r < rows; r++)
                for (int64_t c = 0; c < columns; c++)
                    if (back)
                        square[c][r] = to[r * piece->ld + c];
                    else
                        to[r * piece->ld + c] = square[c][r];
            for (int64_t c = 0; c < columns && back; c++)
                memcpy(array + c * piece->column_stride, square[c], (size_t)rows * 8);
        }
    }
}

static void gather_floats(const hc_piece *piece, hc_pack_x32_fn *transpose, float *values) {
    for (int64_t c = 0; c < piece->columns; c += SQUARE) {
        fetch_ahead(piece, c);
        transpose(piece->array + c * piece->column_stride, piece->column_stride,
                  (int)hc_min(SQUARE, piece->columns - c), piece->rows, values + c, (int)piece->ld, 0);
    }
}

static void scatter_floats(const hc_piece *piece, hc_pack_x32_fn *transpose, const float *values) {
    for (int64_t c = 0; c < piece->columns; c += SQUARE) {
        fetch_ahead(piece, c);
        for (int64_t r = 0; r < piece->rows; r += SQUARE)
            transpose(values + r * piece->ld + c, piece->ld * 4, (int)hc_min(SQUARE, piece->rows - r),
                      hc_min(SQUARE, piece->columns - c), piece->array + c * piece->column_stride + r * 4,
                      (int)(piece->column_stride / 4), 0);
    }
}

/* All other cases, in the loop order of the shorter stride. */
#define COPY(ONE)                                                                                                      \
    if (piece->across)                                                                                                 \
        for (int64_t c = 0; c < piece->columns; c++)                                                                   \
            for (int64_t r = 0; r < piece->rows; r++)                                                                  \
                ONE;                                                                                                   \
    else                                                                                                               \
        for (int64_t r = 0; r < piece->rows; r++)                                                                      \
            for (int64_t c = 0; c < piece->columns; c++)                                                               \
        ONE
#define HERE (piece->array + r * piece->row_stride + c * piece->column_stride)

/* hc_f16_to_f32 of values that are finite, in half as many operations: the shift keeps the sign in place. */
static void widen_halves(const uint16_t *restrict from, int64_t n, float *restrict to) {
    enum { PART = 128 };
    for (int64_t first = 0; first < n; first += PART) {
        const uint16_t *part = from + first;
        const int64_t count = hc_min(PART, n - first);
        int16_t most = 0;
        for (int64_t c = 0; c < count; c++) {
            const int16_t magnitude = (int16_t)(part[c] & 0x7fff);
            most = magnitude > most ? magnitude : most;
        }
        const bool special = most >= 0x7c00;
        for (int64_t c = 0; c < count && !special; c++) {
            const uint32_t shifted = (uint32_t)((int32_t)((uint32_t)part[c] << 16) >> 3);
            to[first + c] = hc_f32_from_bits(shifted & 0x8fffffff) * 0x1p112f;
        }
        for (int64_t c = 0; c < count && special; c++)
            to[first + c] = hc_f16_to_f32(part[c]);
    }
}

void hc_widen_run(const uint16_t *from, hc_dtype dtype, int64_t n, float *to) {
    if (dtype == HC_F16)
        widen_halves(from, n, to);
    else
        for (int64_t c = 0; c < n; c++)
            to[c] = hc_bf16_to_f32(from[c]);
}

/* Such rows of 16-bit floats, at most ACROSS. */
static void gather_halves(const hc_piece *piece, hc_dtype dtype, hc_pack_x32_fn *transpose, float *values) {
    float lines[SQUARE][ACROSS];
    for (int64_t c0 = 0; c0 < piece->columns; c0 += SQUARE) {
        const int64_t columns = hc_min(SQUARE, piece->columns - c0);
        fetch_ahead(piece, c0);
        for (int64_t c = 0; c < columns; c++)
            hc_widen_run((const uint16_t *)(piece->array + (c0 + c) * piece->column_stride), dtype, piece->rows,
                         lines[c]);
        transpose(lines, sizeof *lines, (int)columns, piece->rows, values + c0, (int)piece->ld, 0);
    }
}

/* True if a kernel may transpose: its strides are whole float32 values, as integers of 32 bits. */
static bool fits_kernel(const hc_piece *piece) {
    return piece->ld <= INT32_MAX && piece->column_stride % 4 == 0 && llabs(piece->column_stride / 4) <= INT32_MAX;
}

static void gather_piece(const hc_piece *piece, hc_dtype dtype, hc_pack_x32_fn *transpose, void *values) {
    const int64_t ld = piece->ld, size = hc_dtype_size(dtype);
    const bool adjacent = piece->column_stride == size;
    const bool across = piece->across && piece->row_stride == size && ld <= INT32_MAX;
    if (adjacent && (dtype == HC_F32 || dtype == HC_F64)) {
        for (int64_t r = 0; r < piece->rows; r++)
            memcpy((char *)values + r * ld * size, piece->array + r * piece->row_stride,
                   (size_t)(piece->columns * size));
    } else if (adjacent && ((uintptr_t)piece->array | (uintptr_t)piece->row_stride) % 2 == 0) {
        for (int64_t r = 0; r < piece->rows; r++)
            hc_widen_run((const uint16_t *)(piece->array + r * piece->row_stride), dtype, piece->columns,
                         (float *)values + r * ld);
    } else if (across && dtype == HC_F32) {
        gather_floats(piece, transpose, values);
    } else if (across && dtype == HC_F64) {
        transpose_doubles(piece, values, false);
    } else if (across && (uintptr_t)piece->array % 2 == 0 && piece->column_stride % 2 == 0) {
        gather_halves(piece, dtype, transpose, values);
    } else if (dtype == HC_F32) {
        COPY(((float *)values)[r * ld + c] = hc_load_f32(HERE));
    } else if (dtype == HC_F64) {
        COPY(((double *)values)[r * ld + c] = hc_load_f64(HERE));
    } else if (dtype == HC_F16) {
        COPY(((float *)values)[r * ld + c] = hc_f16_to_f32(hc_load_u16(HERE)));
    } else {
        COPY(((float *)values)[r * ld + c] = hc_bf16_to_f32(hc_load_u16(HERE)));
    }
}

static void scatter_piece(const hc_piece *piece, hc_dtype dtype, hc_pack_x32_fn *transpose, const void *values) {
    const int64_t ld = piece->ld, size = hc_dtype_size(dtype);
    if (piece->column_stride == size) {
        for (int64_t r = 0; r < piece->rows; r++)
            memcpy(piece->array + r * piece->row_stride, (const char *)values + r * ld * size,
                   (size_t)(piece->columns * size));
    } else if (piece->across && piece->row_stride == size && dtype == HC_F64) {
        transpose_doubles(piece, (double *)(uintptr_t)values, true);
    } else if (piece->across && piece->row_stride == size && fits_kernel(piece)) {
        scatter_floats(piece, transpose, values);
    } else if (dtype == HC_F32) {
        COPY(hc_store_f32(HERE, ((const float *)values)[r * ld + c]));
    } else {
        COPY(hc_store_f64(HERE, ((const double *)values)[r * ld + c]));
    }
}

/* Calls the copy function for every piece of the block. Exactly one of `in` and `out` is not NULL. */
static void walk(const hc_row_view *view, uint32_t isa, int64_t first_row, int64_t rows, int64_t first_column,
                 int64_t columns, void *out, const void *in, int64_t ld) {
    const hc_dtype memory = hc_rows_dtype(view);
    const int64_t size = hc_dtype_size(memory);
    const bool across = hc_rows_across(view);
    hc_pack_x32_fn *transpose = hc_kernel_best(HC_FAMILY_pack_x32, isa)->fn.pack_x32;
    const int inner = view->rows.n - 1;
    for (int64_t r = 0, block; r < rows; r += block) {
        block = rows - r;
        if (inner >= 0) {
            const int64_t shape = view->rows.shape[inner];
            block = hc_min(block, shape - (first_row + r) % shape);
        }
        if (across)
            block = hc_min(block, ACROSS);
        hc_piece piece = {.rows = block,
                          .ld = ld,
                          .across = across,
                          .column_stride = view->column_stride,
                          .row_stride = inner >= 0 ? view->rows.stride[inner] : 0};
        char *const row_data = view->data + hc_dims_offset(&view->rows, first_row + r);
        for (int64_t c = 0, next; c < columns; c = next) {
            const int64_t run = (first_column + c) / view->padded_run, skip = first_column + c - run * view->padded_run;
            next = hc_min(columns, c + view->padded_run - skip);
            const int64_t place = r * ld + c, values = hc_max(0, hc_min(next - c, view->run_length - skip));
            piece.columns = values;
            piece.array = row_data + hc_dims_offset(&view->runs, run) + skip * view->column_stride;
            if (in) {
                scatter_piece(&piece, view->dtype, transpose, (const char *)in + place * size);
                continue;
            }
            gather_piece(&piece, view->dtype, transpose, (char *)out + place * size);
            for (int64_t i = 0; i < block && values < next - c; i++)
                memset((char *)out + (place + i * ld + values) * size, 0, (size_t)((next - c - values) * size));
        }
    }
}

void hc_rows_gather(const hc_row_view *view, uint32_t isa, int64_t first_row, int64_t rows, int64_t first_column,
                    int64_t columns, void *values, int64_t ld) {
    walk(view, isa, first_row, rows, first_column, columns, values, NULL, ld);
}

void hc_rows_scatter(const hc_row_view *view, uint32_t isa, int64_t first_row, int64_t rows, int64_t first_column,
                     int64_t columns, const void *values, int64_t ld) {
    walk(view, isa, first_row, rows, first_column, columns, NULL, values, ld);
}
