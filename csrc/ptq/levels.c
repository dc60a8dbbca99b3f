/* The gain of moving the levels of a table under H, with all codes fixed. The error of a row is a quadratic function of
 * its levels; this file computes its matrix and its slope. H is read one strip of columns at a time, for many rows.
 */
#include "ptq/grid.h"

#include <string.h>

enum { STEP = 128 };

typedef struct {
    hc_ptq_rows rows;
    const double *w, *h;
    const int32_t *codes;
    int64_t first, count;
    double *curvature, *slope;
} levels_job;

/* Adds the strip of columns begin .. begin + n - 1 of row r of the rows from `first` on. `parts` is (levels, STEP). */
static void add_strip(const levels_job *job, int64_t row, int64_t begin, int64_t n, const double *scale,
                      double *parts) {
    const hc_ptq_grid *grid = job->rows.grid;
    const int64_t k = grid->columns, levels = grid->n_levels;
    double *out = job->curvature + (row - job->first) * levels * levels;
    memset(parts, 0, (size_t)(levels * STEP) * sizeof *parts);
    for (int64_t j = 0; j < k; j++)
        job->rows.axpy(n, scale[j], job->h + j * k + begin, parts + job->codes[j * grid->rows + row] * STEP);
    for (int64_t i = 0; i < n; i++) {
        double *sums = out + job->codes[(begin + i) * grid->rows + row] * levels;
        for (int64_t level = 0; level < levels; level++)
            sums[level] = sums[level] + scale[begin + i] * parts[level * STEP + i];
    }
}

static void levels_task(void *context, int64_t task, int thread) {
    const levels_job *job = context;
    const hc_ptq_rows *rows = &job->rows;
    const hc_ptq_grid *grid = rows->grid;
    const int64_t k = grid->columns, levels = grid->n_levels, from = task * rows->width;
    const int64_t first = job->first + from, n = hc_min(rows->width, job->count - from);
    double *errors = rows->scratch + thread * rows->scratch_size, *slopes = errors + k * n;
    double *scale = slopes + HC_PTQ_BLOCK * n, *parts = scale + k * n; /* scale is (n, k) */
    memset(job->slope + from * levels, 0, (size_t)(n * levels) * sizeof(double));
    memset(job->curvature + from * levels * levels, 0, (size_t)(n * levels * levels) * sizeof(double));
    hc_ptq_errors(rows, job->w, job->codes, first, n, errors);
    for (int64_t j = 0; j < k; j++) {
        const double *all = grid->scale + grid->group[j] * grid->rows + first;
        const uint8_t *mask = hc_ptq_mask(grid, j, first);
        for (int64_t i = 0; i < n; i++)
            scale[i * k + j] = mask && !mask[i] ? 0.0 : all[i];
    }
    for (int64_t block = 0; block < k; block += HC_PTQ_BLOCK) {
        const int64_t count = hc_min(HC_PTQ_BLOCK, k - block);
        memset(slopes, 0, (size_t)(count * n) * sizeof *slopes);
        hc_ptq_multiply(rows->gemm, count, n, k, 1.0, job->h + block, k, errors, n, slopes, n,
                        hc_ptq_pack(rows, thread));
        for (int64_t i = 0; i < n; i++)
            for (int64_t j = 0; j < count; j++) {
                double *sum = job->slope + (from + i) * levels + job->codes[(block + j) * grid->rows + first + i];
                *sum = *sum + scale[i * k + block + j] * slopes[j * n + i];
            }
    }
    for (int64_t begin = 0; begin < k; begin += STEP)
        for (int64_t i = 0; i < n; i++)
            add_strip(job, first + i, begin, hc_min(STEP, k - begin), scale + i * k, parts);
}

hc_status hc_ptq_levels(const hc_run *run, const hc_ptq_grid *grid, const double *w, const double *h,
                        const int32_t *codes, int64_t first, int64_t count, double *curvature, double *slope,
                        hc_error *error) {
    levels_job job = {
        .w = w, .h = h, .codes = codes, .first = first, .count = count, .curvature = curvature, .slope = slope};
    /* The size of the table of parts depends on levels, not on rows, so a task has at least 16 rows. */
    const int64_t columns = 2 * grid->columns + HC_PTQ_BLOCK + grid->n_levels * (STEP / 16);
    const hc_status status = hc_ptq_begin(run, grid, columns, &job.rows, error);
    if (status != HC_OK)
        return status;
    hc_parallel(run->n_threads, hc_ceil_div(count, job.rows.width), levels_task, &job);
    hc_free_aligned(job.rows.scratch);
    return HC_OK;
}
