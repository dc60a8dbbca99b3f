/* Rounding columns of some rows to a grid, for the files of this folder. */
#ifndef HC_PTQ_GRID_H
#define HC_PTQ_GRID_H

#include "base/threads.h"
#include "ptq/ptq.h"
#include "ptq/tiles.h"

enum { HC_PTQ_WIDTH = 128, HC_PTQ_FEW = 256 }; /* rows; levels that are compared one by one */

/* The state of a task over rows: kernels, and memory of its thread. */
typedef struct {
    const hc_kernel *gemm;
    hc_axpy_f64_fn *axpy;
    hc_round_steps_fn *steps;
    hc_round_levels_fn *levels;
    const hc_ptq_grid *grid;
    int64_t width; /* rows of a task, at most HC_PTQ_WIDTH */
    int64_t scratch_size;
    double *scratch; /* scratch_size of each thread */
    int64_t pack;    /* offset of the memory in which hc_ptq_multiply packs */
} hc_ptq_rows;

/* Scratch memory of `columns` columns for each thread; free it with hc_free_aligned(rows->scratch). */
hc_status hc_ptq_begin(const hc_run *run, const hc_ptq_grid *grid, int64_t columns, hc_ptq_rows *rows, hc_error *error);
static inline int64_t hc_ptq_tasks(const hc_ptq_rows *rows) { return hc_ceil_div(rows->grid->rows, rows->width); }

/* The memory of a thread for the packing of hc_ptq_multiply. */
static inline double *hc_ptq_pack(const hc_ptq_rows *rows, int thread) {
    return rows->scratch + thread * rows->scratch_size + rows->pack;
}

/* Prefetches n items of a column a few columns ahead: columns are far apart, and hardware prefetchers do not predict
 * the next one. */
static inline void hc_ptq_prefetch(const hc_ptq_grid *grid, const void *items, int64_t size, int64_t column,
                                   int64_t first, int64_t n) {
    enum { AHEAD = 6, LINE = 64 };
    const char *at = (const char *)items + ((column + AHEAD) * grid->rows + first) * size;
    for (int64_t byte = 0; column + AHEAD < grid->columns && byte < n * size; byte += LINE)
        __builtin_prefetch(at + byte);
}

/* The mask of rows first .. of a column; NULL without a mask. */
static inline uint8_t *hc_ptq_mask(const hc_ptq_grid *grid, int64_t column, int64_t first) {
    return grid->mask ? grid->mask + column * grid->rows + first : NULL;
}

/* Rounds column j of rows first .. first + n - 1, ignoring the mask. */
void hc_ptq_round(const hc_ptq_rows *rows, int64_t column, int64_t first, int64_t n, const double *x, double *code,
                  double *value);
/* Moves codes of a column to levels within the budget, and adds them to its sums. `codes`, which may be NULL, were the
 * codes before, whose share is taken away first. */
void hc_ptq_limit(const hc_ptq_rows *rows, const hc_ptq_budget *budget, int64_t column, int64_t first, int64_t n,
                  const int32_t *codes, double *code, double *value);
/* Adds a level to the sums of a row. */
static inline void hc_ptq_spend(const hc_ptq_budget *budget, int64_t at, double level, double sign) {
    *(level > 0 ? budget->positive + at : budget->negative + at) += sign * (level > 0 ? level : -level);
}
/* c of `refit`: the value without its scale, 0 if the mask removes it. */
void hc_ptq_factors(const hc_ptq_rows *rows, int64_t column, int64_t first, int64_t n, const int32_t *codes, double *c);

/* w - value of every column, (columns, n). */
void hc_ptq_errors(const hc_ptq_rows *rows, const double *w, const int32_t *codes, int64_t first, int64_t n,
                   double *errors);

#endif
