/* Rounding columns of some rows to a grid. */
#include "ptq/grid.h"

#include <float.h>
#include <math.h>
#include <string.h>

enum { SCRATCH = (48 << 20) / sizeof(double) }; /* of all threads, if 16 rows of each thread do not take more */

hc_status hc_ptq_begin(const hc_run *run, const hc_ptq_grid *grid, int64_t columns, hc_ptq_rows *rows,
                       hc_error *error) {
    /* A multiple of every tile. More rows per task read the factor less often, fewer rows keep all threads busy. */
    const int64_t share = hc_round_up(hc_ceil_div(grid->rows, 2 * run->n_threads), 16);
    *rows = (hc_ptq_rows){.gemm = HC_BEST(gemm_f64, run),
                          .axpy = HC_PICK(axpy_f64, run),
                          .steps = HC_PICK(round_steps, run),
                          .levels = HC_PICK(round_levels, run),
                          .grid = grid,
                          .width = hc_max(16, hc_min(HC_PTQ_WIDTH, share))};
    int64_t bytes;
    while (rows->width > 16 && columns > SCRATCH / (rows->width * run->n_threads))
        rows->width -= 16;
    if (!hc_mul_size(rows->width, columns, &rows->pack) ||
        (rows->scratch_size = rows->pack + HC_PTQ_PACK) < HC_PTQ_PACK ||
        !hc_mul_size(rows->scratch_size, (int64_t)sizeof(double) * run->n_threads, &bytes) ||
        !(rows->scratch = hc_alloc_aligned(bytes)))
        return hc_fail(error, HC_MEMORY, "ptq: not enough memory for %lld columns of %lld rows a thread",
                       (long long)columns, (long long)rows->width);
    return HC_OK;
}

static void round_exact(int64_t n, const double *x, double *code, double *value) {
    for (int64_t i = 0; i < n; i++) {
        const float nearest = (float)fmin(fmax(x[i], -(double)FLT_MAX), (double)FLT_MAX);
        int32_t bits;
        memcpy(&bits, &nearest, sizeof bits);
        code[i] = (double)bits;
        value[i] = (double)nearest;
    }
}

/* As the kernels round_levels, which compare with every threshold. Codes of more than 8 bits have too many of them. */
static void round_many_levels(int64_t n, const double *x, const double *scale, int n_levels, const double *levels,
                              const double *thresholds, double *code, double *value) {
    for (int64_t i = 0; i < n; i++) {
        const double t = scale[i] > 0 ? x[i] / scale[i] : 0.0;
        int64_t first = 0, end = n_levels - 1;
        while (first < end) {
            const int64_t middle = (first + end) / 2;
            if (t > thresholds[middle])
                first = middle + 1;
            else
                end = middle;
        }
        code[i] = (double)first;
        value[i] = levels[first] * scale[i];
    }
}

void hc_ptq_round(const hc_ptq_rows *rows, int64_t column, int64_t first, int64_t n, const double *x, double *code,
                  double *value) {
    const hc_ptq_grid *grid = rows->grid;
    const int64_t at = grid->group[column] * grid->rows + first;
    const double *scale = grid->scale + at;
    if (grid->exact)
        round_exact(n, x, code, value);
    else if (grid->n_levels == 0)
        rows->steps(n, x, scale, grid->zero ? grid->zero + at : NULL, grid->low, grid->high, code, value);
    else if (grid->per_row)
        rows->levels(n, x, scale, grid->n_levels, grid->levels + first, grid->thresholds + first, grid->rows, 1, code,
                     value);
    else if (grid->n_levels > HC_PTQ_FEW)
        round_many_levels(n, x, scale, grid->n_levels, grid->levels, grid->thresholds, code, value);
    else
        rows->levels(n, x, scale, grid->n_levels, grid->levels, grid->thresholds, 1, 0, code, value);
}

/* The largest level whose sign has the costs per[2], with these sums. */
static double room(const hc_ptq_budget *budget, const double *per, double positive, double negative) {
    double found = INFINITY;
    for (int i = 0; i < 2; i++)
        if (per[i] > 0)
            found = fmin(found, (budget->limit[i] - budget->p[i] * positive - budget->n[i] * negative) / per[i]);
    return floor(fmax(found, 0));
}

void hc_ptq_limit(const hc_ptq_rows *rows, const hc_ptq_budget *budget, int64_t column, int64_t first, int64_t n,
                  const int32_t *codes, double *code, double *value) {
    const hc_ptq_grid *grid = rows->grid;
    const int64_t at = grid->group[column] * grid->rows + first, segment = budget->segment[column] * grid->rows + first;
    for (int64_t i = 0; i < n; i++) {
        const double zero = grid->zero ? grid->zero[at + i] : 0.0;
        if (codes)
            hc_ptq_spend(budget, segment + i, (double)codes[i] - zero, -1);
        const double positive = budget->positive[segment + i], negative = budget->negative[segment + i];
        double level = code[i] - zero;
        if (level > 0)
            level = fmin(level, room(budget, budget->p, positive, negative));
        else if (level < 0)
            level = -fmin(-level, room(budget, budget->n, positive, negative));
        hc_ptq_spend(budget, segment + i, level, 1);
        code[i] = level + zero;
        value[i] = grid->scale[at + i] * level;
    }
}

void hc_ptq_factors(const hc_ptq_rows *rows, int64_t column, int64_t first, int64_t n, const int32_t *codes,
                    double *c) {
    const hc_ptq_grid *grid = rows->grid;
    const double *zero = grid->zero ? grid->zero + grid->group[column] * grid->rows + first : NULL;
    const int64_t stride = grid->per_row ? grid->rows : 1;
    const uint8_t *mask = hc_ptq_mask(grid, column, first);
    for (int64_t i = 0; i < n; i++) {
        float exact;
        memcpy(&exact, codes + i, sizeof exact);
        if (mask && !mask[i])
            c[i] = 0.0;
        else if (grid->exact)
            c[i] = (double)exact;
        else if (grid->n_levels == 0)
            c[i] = (double)codes[i] - (zero ? zero[i] : 0.0);
        else
            c[i] = grid->levels[codes[i] * stride + (grid->per_row ? first + i : 0)];
    }
}

void hc_ptq_errors(const hc_ptq_rows *rows, const double *w, const int32_t *codes, int64_t first, int64_t n,
                   double *errors) {
    const hc_ptq_grid *grid = rows->grid;
    for (int64_t j = 0; j < grid->columns; j++) {
        const double *x = w + j * grid->rows + first, *scale = grid->scale + grid->group[j] * grid->rows + first;
        double *left = errors + j * n;
        hc_ptq_factors(rows, j, first, n, codes + j * grid->rows + first, left);
        for (int64_t i = 0; i < n; i++)
            left[i] = x[i] - scale[i] * left[i];
    }
}
