/* Both sides of a product are rows over the same k: y[i, j] = sum_k a_i[k] * b_j[k]. A source yields portions of such
 * rows, whatever they come from (a view with any strides, a packed array, the windows of an image): as float32
 * values, or as the integers of base/packed.h. Columns are logical: paddings of groups are already gone.
 *
 * What the product drivers (gemm.c, gemv.c) write to is a target: any strides, rows split over several dimensions.
 */
#ifndef HC_SOURCE_H
#define HC_SOURCE_H

#include "hc.h"

/* Row r of a matrix whose rows run over several dimensions in C order; strides in bytes. */
typedef struct {
    char *data;
    int n_dims;
    int64_t shape[HC_MAX_DIMS], stride[HC_MAX_DIMS];
    int64_t rows;          /* how many there are from `first` on */
    int64_t first;         /* row 0 is row `first` of the dimensions */
    int64_t column_stride; /* bytes */
} hc_rows;

static inline char *hc_row(const hc_rows *rows, int64_t row) {
    char *data = rows->data;
    row += rows->first;
    for (int i = rows->n_dims - 1; i > 0; i--) {
        data += row % rows->shape[i] * rows->stride[i];
        row /= rows->shape[i];
    }
    return rows->n_dims ? data + row * rows->stride[0] : data;
}

typedef struct hc_source hc_source;
struct hc_source {
    int64_t rows, columns;
    /* Rows [first_row, +rows), columns [first_column, +columns) as float32 into values[rows][ld]. Thread-safe. */
    void (*floats)(const hc_source *source, int64_t first_row, int64_t rows, int64_t first_column, int64_t columns,
                   float *values, int64_t ld);
    /* The same as integers; whole groups unless there are none; NULL where there are no integers. */
    void (*integers)(const hc_source *source, hc_int_mode mode, int64_t first_row, int64_t rows, int64_t first_column,
                     int64_t columns, const hc_int_tile *tile);
    hc_int_form form[2];             /* by hc_int_mode */
    const hc_prepacked *prepacked;   /* panels of exactly these rows, if they were made before */
    int64_t runs, run_length, group; /* group boundaries in columns: every run starts anew; group 0: one group a row */
    const void *context;
    const void *sparse; /* the context of hc_sparse_source (ops/sparse.h), else NULL */
    /* float32 values of neighbouring rows lie side by side: (row, column) at side + row * 4 + column * side_stride; or
     * NULL. */
    const char *side;
    int64_t side_stride;
    /* float32 values of neighbouring columns do: (row, column) at along + row * along_stride + column * 4; or NULL. */
    const char *along;
    int64_t along_stride;
};

/* The driver for more than a few vectors. FLOATS: one fmaf chain over k a value. FOLDED: exact in integers, then
 * y = float32((float64(row_scale_a) * float64(row_scale_b)) * float64(S)). GROUPED: acc = fmaf(float32(s_a * s_b),
 * float32(dot), acc) over the segments that all boundaries of both sides cut, ascending. */
typedef enum { HC_PRODUCT_FLOATS = 0, HC_PRODUCT_FOLDED, HC_PRODUCT_GROUPED } hc_product_kind;
hc_status hc_gemm(const hc_run *run, hc_product_kind kind, const hc_source *a, const hc_source *b, const hc_rows *out,
                  hc_error *error);

/* Weights (packed rows: one run, reduction = the whole row) times 1 to 8 vectors, by the stated orders of the
 * public API. x: float32 (n_vectors, columns), leading dimension ldx, values of the dense operand. */
hc_status hc_gemv_floats(const hc_run *run, const hc_packed *weights, const hc_geometry *geometry, int64_t first_row,
                         int64_t rows, const float *x, int64_t ldx, int64_t n_vectors, const hc_rows *out,
                         hc_error *error);
/* The same with the vectors packed (one run each, any integer format; vectors are packed rows first_vector ...):
 * FOLDED or GROUPED as above. */
hc_status hc_gemv_integers(const hc_run *run, hc_product_kind kind, const hc_packed *weights,
                           const hc_geometry *geometry, int64_t first_row, int64_t rows, const hc_packed *x,
                           const hc_geometry *x_geometry, int64_t first_vector, int64_t n_vectors, const hc_rows *out,
                           hc_error *error);

#endif
