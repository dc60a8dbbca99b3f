/* In each cycle every cell receives the values that its neighbours held in the preceding cycle: moving values from the
 * left, sums or stationary values from the top.
 *
 *     stationary weights, or inputs   rows cycles to load, then T + rows + cols - 2 until the last sum has left at the bottom
 *     stationary outputs              T + rows + cols - 2 until the last product is formed
 *
 * T vectors stream through a fold. They enter skewed: row r (and for stationary outputs column c) starts r (c) cycles
 * late. Samajdar et al., "SCALE-Sim", ISPASS 2020, counts the same cycles and prints the index of the last one.
 */
#include "model/systolic.h"

#include "base/watch.h"

#include <string.h>

/* A matrix read at (i, j), 0 outside it. */
typedef struct {
    const double *data;
    int64_t n_rows, n_cols, row_step, col_step;
} matrix;

static bool holds(const matrix *x, int64_t i, int64_t j) { return i >= 0 && i < x->n_rows && j >= 0 && j < x->n_cols; }
static double at(const matrix *x, int64_t i, int64_t j) {
    return holds(x, i, j) ? x->data[i * x->row_step + j * x->col_step] : 0;
}

typedef struct {
    double *still, *moving, *sum; /* rows x cols registers each */
    int64_t rows, cols;
} array;

/* Everything in `x` moves one cell right; `edge` enters on the left. */
static void pulse_right(const array *cells, double *x, const double *edge) {
    for (int64_t r = 0; r < cells->rows; r++) {
        memmove(x + r * cells->cols + 1, x + r * cells->cols, (size_t)(cells->cols - 1) * sizeof *x);
        x[r * cells->cols] = edge[r];
    }
}

/* Everything in `x` moves one cell down; `edge` enters at the top. */
static void pulse_down(const array *cells, double *x, const double *edge) {
    memmove(x + cells->cols, x, (size_t)((cells->rows - 1) * cells->cols) * sizeof *x);
    memcpy(x, edge, (size_t)cells->cols * sizeof *x);
}

/* One fold with stationary values: still[r][c] = fixed(k0 + r, c0 + c), and stream row t gives sum t of every
 * column. */
static void fold_stationary(array *cells, double *edge, const matrix *fixed, const matrix *stream, int64_t k0,
                            int64_t c0, double *out, int64_t out_row, int64_t out_col, hc_systolic_run *run) {
    const int64_t rows = cells->rows, cols = cells->cols, length = stream->n_rows;
    for (int64_t cycle = 0; cycle < rows && !hc_stopping(); cycle++) {
        for (int64_t c = 0; c < cols; c++) {
            edge[c] = at(fixed, k0 + rows - 1 - cycle, c0 + c);
            run->top_reads += holds(fixed, k0 + rows - 1 - cycle, c0 + c);
        }
        pulse_down(cells, cells->still, edge);
        run->cycles++;
    }
    for (int64_t cycle = 0; cycle < length + rows + cols - 2 && !hc_stopping(); cycle++) {
        for (int64_t r = 0; r < rows; r++) {
            edge[r] = at(stream, cycle - r, k0 + r);
            run->left_reads += holds(stream, cycle - r, k0 + r);
        }
        pulse_right(cells, cells->moving, edge);
        memset(edge, 0, (size_t)cols * sizeof *edge);
        pulse_down(cells, cells->sum, edge);
        for (int64_t i = 0; i < rows * cols; i++)
            cells->sum[i] += cells->moving[i] * cells->still[i];
        for (int64_t c = 0; c < cols; c++) {
            const int64_t t = cycle - (rows - 1) - c;
            if (t >= 0 && t < length && c0 + c < fixed->n_cols) {
                out[t * out_row + (c0 + c) * out_col] += cells->sum[(rows - 1) * cols + c];
                run->writes++;
            }
        }
        run->cycles++;
    }
    run->folds++;
}

static void fold_outputs(array *cells, double *edge, const matrix *left, const matrix *top, int64_t r0, int64_t c0,
                         double *out, hc_systolic_run *run) {
    const int64_t rows = cells->rows, cols = cells->cols, length = left->n_cols;
    for (int64_t cycle = 0; cycle < length + rows + cols - 2 && !hc_stopping(); cycle++) {
        for (int64_t r = 0; r < rows; r++) {
            edge[r] = at(left, r0 + r, cycle - r);
            run->left_reads += holds(left, r0 + r, cycle - r);
        }
        pulse_right(cells, cells->moving, edge);
        for (int64_t c = 0; c < cols; c++) {
            edge[c] = at(top, cycle - c, c0 + c);
            run->top_reads += holds(top, cycle - c, c0 + c);
        }
        pulse_down(cells, cells->still, edge);
        for (int64_t i = 0; i < rows * cols; i++)
            cells->sum[i] += cells->moving[i] * cells->still[i];
        run->cycles++;
    }
    for (int64_t r = 0; r < rows && r0 + r < left->n_rows; r++)
        for (int64_t c = 0; c < cols && c0 + c < top->n_cols; c++) {
            out[(r0 + r) * top->n_cols + c0 + c] = cells->sum[r * cols + c];
            run->writes++;
        }
    run->folds++;
}

hc_status hc_systolic_gemm(const double *a, const double *b, int64_t m, int64_t n, int64_t k,
                           hc_systolic_dataflow dataflow, double *c, hc_systolic_run *run, hc_error *error) {
    const int64_t rows = run->rows, cols = run->cols;
    *run = (hc_systolic_run){.rows = rows, .cols = cols};
    int64_t n_cells, bytes;
    if (!hc_mul_size(rows, cols, &n_cells) || !hc_mul_size(3 * n_cells + hc_max(rows, cols), sizeof(double), &bytes) ||
        n_cells > INT32_MAX)
        return hc_fail(error, HC_MEMORY, "systolic: not enough memory for an array of %lld x %lld", (long long)rows,
                       (long long)cols);
    double *memory = hc_alloc_aligned(bytes);
    if (!memory)
        return hc_fail(error, HC_MEMORY, "systolic: not enough memory for an array of %lld x %lld", (long long)rows,
                       (long long)cols);
    array cells = {memory, memory + n_cells, memory + 2 * n_cells, rows, cols};
    double *edge = memory + 3 * n_cells;
    const matrix in = {a, m, k, k, 1}, in_turned = {a, k, m, 1, k};
    const matrix weights = {b, k, n, n, 1}, weights_turned = {b, n, k, 1, n};
    memset(c, 0, (size_t)(m * n) * sizeof *c);
    const bool os = dataflow == HC_OUTPUT_STATIONARY, is = dataflow == HC_INPUT_STATIONARY;
    for (int64_t col = 0; col < (is ? m : n) && !hc_stopping(); col += cols)
        for (int64_t row = 0; row < (os ? m : k) && !hc_stopping(); row += rows) {
            memset(memory, 0, (size_t)bytes);
            if (os)
                fold_outputs(&cells, edge, &in, &weights, row, col, c, run);
            else if (is)
                fold_stationary(&cells, edge, &in_turned, &weights_turned, row, col, c, 1, n, run);
            else
                fold_stationary(&cells, edge, &weights, &in, row, col, c, n, 1, run);
        }
    hc_free_aligned(memory);
    return HC_OK;
}
