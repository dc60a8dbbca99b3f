/* Both sides of a matmul are rows over the same k: y[i, j] = sum_k a_i[k] * b_j[k]. A source returns portions of such
 * rows, as float32 values or as the integers of base/packed.h. Rows can come from a view with any strides, a packed
 * array, or the windows of an image. Columns are logical: padding of groups is removed.
 *
 * A target receives the results of matmuls: any strides, rows split over several dimensions.
 */
#ifndef HC_PRODUCT_H
#define HC_PRODUCT_H

#include "formats/format.h"
#include "hc.h"

/* Row r of a matrix whose rows run over several dimensions in C order; strides in bytes. */
typedef struct {
    char *data;
    int n_dims;
    int64_t shape[HC_MAX_DIMS], stride[HC_MAX_DIMS];
    int64_t rows;          /* number of rows from `first` on */
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
    /* The same as integers; whole groups unless there are none; NULL if the source has no integers. */
    void (*integers)(const hc_source *source, hc_int_mode mode, int64_t first_row, int64_t rows, int64_t first_column,
                     int64_t columns, const hc_int_tile *tile);
    hc_int_form form[HC_N_INT_MODES]; /* by hc_int_mode */
    const hc_prepacked *prepacked;    /* panels of exactly these rows if they were prepacked, or NULL */
    /* group boundaries in columns: groups restart at every run; group 0: one group per row */
    int64_t runs, run_length, group;
    const void *context;
    const void *sparse; /* the context if the format has a pattern, otherwise NULL */
    /* If float32 values of neighbouring rows are contiguous: (row, column) is at side + row * 4 + column * side_stride.
     * Otherwise NULL. */
    const char *side;
    int64_t side_stride;
    /* If float32 values of neighbouring columns are contiguous: (row, column) is at along + row * along_stride + column
     * * 4. Otherwise NULL. */
    const char *along;
    int64_t along_stride;
};

/* The orders of summation: a matmul has the bits of its order, whichever path computes it.
 *
 *   CHAIN    one fmaf chain over k per value
 *   FOLDED   integers, scales multiplied into the codes: exact, y = float32((float64(s_x) * float64(s_w)) * float64(S))
 *   GROUPED  acc = fmaf(float32(s_x * s_w), float32(dot), acc) over the segments that all group boundaries of both sides cut,
 *            ascending; the dot of a segment is exact. Where one side has minima, its codes are those and, added last,
 *            another such sum has codes of 1 and the minima as scales (ops/gemv/minima.c)
 *   GEMV     up to HC_GEMV_MOST rows of floats, or any number if the run wants one order: 16 accumulators over groups
 *            or 64 over columns (ops/gemv/tiles.c). A path multiplies up to HC_GEMV_BLOCK of these rows at once, for
 *            weights with a pattern up to HC_GEMV_MOST. Formats whose sums of codes overflow have the order CHAIN
 *            (hc_sums_of_codes_overflow) */
typedef enum { HC_ORDER_CHAIN = 0, HC_ORDER_FOLDED, HC_ORDER_GROUPED, HC_ORDER_GEMV, HC_N_ORDERS } hc_order;
enum { HC_GEMV_MOST = 8, HC_GEMV_BLOCK = 32 };
/* Integers if both sides have them, folded before grouped. Otherwise floats, with an order of its own for few
 * vectors. */
hc_order hc_order_of(const hc_source *x, const hc_source *w);

/* Rows [first_row, first_row + rows) of a packed array. */
typedef struct {
    const hc_run *run;
    const hc_format *format;
    const hc_geometry *geometry;
    const hc_components *components;
    int64_t first_row;
} hc_packed_context;

/* y[i, j] = sum over k of x_i[k] w_j[k]. Rows of `out` are those of x, its columns are the rows of w. */
typedef struct {
    const hc_run *run;
    hc_order order;
    const hc_source *x, *w;
    const hc_packed_context *x_packed, *w_packed; /* the side as packed rows, or NULL */
    const float *vectors;                         /* HC_ORDER_GEMV: the rows of x, ld_vectors apart; otherwise NULL */
    int64_t ld_vectors;
    int64_t matrices; /* of a batch of dense ones, one product each; 0 is 1 */
    hc_rows out;
} hc_product;

/* NULL, or why decoded tiles of weights with a pattern would give other bits than their nonzeros alone (exact_nm.c).
 * Reads all values. */
const char *hc_zeros_differ(const hc_run *run, const hc_source *x, const hc_source *w);

/* Bound of the working memory of a matmul, for all threads together, except for the memory that a file states
 * itself. */
enum { HC_WORK_BYTES = 16 << 20 };

/* Merges dimensions of rows with one common stride, so that most results have one dimension; and the same run with no
 * more threads than are worth waking. */
hc_rows hc_merged_rows(const hc_rows *rows);
hc_run hc_run_for(const hc_product *product);

#endif
