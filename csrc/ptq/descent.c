/* Coordinate descent under H: on codes (Behdin et al., "QuantEase", 2023, arXiv 2309.01885), and on scales as they are
 * stored, which is the same with one more factor. Each step is an exact minimum, so the error never rises.
 */
#include "base/convert.h"
#include "ptq/grid.h"

#include <float.h>
#include <math.h>
#include <string.h>

typedef struct {
    hc_ptq_rows rows;
    const double *w, *h;
    const hc_ptq_scales *scales;
    int32_t *codes;
    const int32_t *fixed;
    int64_t *changed; /* of each task */
} descent_job;

/* One column: where the rounded target is nearer than what stands, it is taken, and the rest of the block hears of it. */
static int64_t step(const descent_job *job, int64_t column, int64_t last, int64_t first, int64_t n, double *errors,
                    double *slopes, double *scratch) {
    const hc_ptq_rows *rows = &job->rows;
    const hc_ptq_grid *grid = rows->grid;
    const double *x = job->w + column * grid->rows + first, *h = job->h + column * grid->columns;
    const double curvature = h[column];
    double *target = scratch, *code = target + n, *value = code + n, *left = errors + column * n;
    int32_t *codes = job->codes + column * grid->rows + first;
    const uint8_t *mask = hc_ptq_mask(grid, column, first);
    int64_t changed = 0;
    if (!(curvature > 0))
        return 0;
    for (int64_t i = 0; i < n; i++)
        target[i] = (x[i] - left[i]) + slopes[i] / curvature;
    hc_ptq_round(rows, column, first, n, target, code, value);
    for (int64_t i = 0; i < n; i++) {
        const double stands = x[i] - left[i];
        const bool nearer = (!mask || mask[i]) && fabs(target[i] - value[i]) < fabs(target[i] - stands);
        const double next = nearer ? x[i] - value[i] : left[i];
        value[i] = next - left[i];
        left[i] = next;
        changed += nearer && codes[i] != (int32_t)code[i];
        codes[i] = nearer ? (int32_t)code[i] : codes[i];
    }
    for (int64_t later = column + 1; later < last; later++)
        rows->axpy(n, h[later], value, slopes + (later - column) * n);
    return changed;
}

static void sweep_task(void *context, int64_t task, int thread) {
    const descent_job *job = context;
    const hc_ptq_rows *rows = &job->rows;
    const hc_ptq_grid *grid = rows->grid;
    const int64_t k = grid->columns, first = task * rows->width, n = hc_min(rows->width, grid->rows - first);
    double *errors = rows->scratch + thread * rows->scratch_size, *slopes = errors + k * n;
    double *scratch = slopes + HC_PTQ_BLOCK * n;
    int64_t changed = 0;
    hc_ptq_errors(rows, job->w, job->codes, first, n, errors);
    for (int64_t block = 0; block < k; block += HC_PTQ_BLOCK) {
        const int64_t last = hc_min(block + HC_PTQ_BLOCK, k);
        memset(slopes, 0, (size_t)((last - block) * n) * sizeof *slopes);
        hc_ptq_multiply(rows->gemm, last - block, n, k, 1.0, job->h + block, k, errors, n, slopes, n,
                        hc_ptq_pack(rows, thread));
        for (int64_t j = block; j < last; j++)
            changed += step(job, j, last, first, n, errors, slopes + (j - block) * n, scratch);
    }
    job->changed[task] = changed;
}

/* Runs a task over rows, and adds up what each changed. */
static hc_status descend(const hc_run *run, const hc_ptq_grid *grid, int64_t columns, hc_task *task, descent_job *job,
                         int64_t *changed, hc_error *error) {
    hc_status status = hc_ptq_begin(run, grid, columns, &job->rows, error);
    if (status != HC_OK)
        return status;
    const int64_t tasks = hc_ptq_tasks(&job->rows);
    job->changed = hc_alloc_aligned(hc_max(tasks, 1) * (int64_t)sizeof *job->changed);
    if (job->changed)
        hc_parallel(run->n_threads, tasks, task, job);
    else
        status = hc_fail(error, HC_MEMORY, "ptq: no memory for %lld tasks", (long long)tasks);
    *changed = 0;
    for (int64_t i = 0; job->changed && i < tasks; i++)
        *changed += job->changed[i];
    hc_free_aligned(job->changed);
    hc_free_aligned(job->rows.scratch);
    return status;
}

hc_status hc_ptq_sweep(const hc_run *run, const hc_ptq_grid *grid, const double *w, const double *h, int32_t *codes,
                       int64_t *changed, hc_error *error) {
    descent_job job = {.w = w, .h = h, .codes = codes};
    return descend(run, grid, grid->columns + HC_PTQ_BLOCK + 3, sweep_task, &job, changed, error);
}

static double table_scale(const hc_ptq_scales *scales, double unit, int i) {
    const double exact = unit * scales->table[i];
    return scales->kind == HC_PTQ_TABLE_F32 ? (double)(float)exact : exact;
}

/* The stored scale nearest to t, the lower of two. */
static double stored_scale(const hc_ptq_scales *scales, int64_t row, double t) {
    if (scales->kind == HC_PTQ_F32)
        return t < (double)FLT_MAX ? (double)(float)t : 0.0;
    if (scales->kind == HC_PTQ_F16)
        return t < 65504.0 ? (double)hc_f16_to_f32(hc_f32_to_f16((float)t)) : 65504.0;
    const double unit = scales->unit[row];
    int low = 0, high = scales->n - 1;
    while (high - low > 1) {
        const int middle = low + (high - low) / 2;
        if (table_scale(scales, unit, middle) <= t)
            low = middle;
        else
            high = middle;
    }
    const double below = table_scale(scales, unit, low), above = table_scale(scales, unit, high);
    return above - t < t - below ? above : below;
}

/* Columns begin .. end - 1 are one group. */
static int64_t refit_group(const descent_job *job, int thread, int64_t begin, int64_t end, int64_t first, int64_t n,
                           double *errors, double *scratch) {
    const hc_ptq_rows *rows = &job->rows;
    const hc_ptq_grid *grid = rows->grid;
    const int64_t k = grid->columns;
    double *factors = scratch, *slopes = factors + (end - begin) * n, *own = slopes + HC_PTQ_BLOCK * n;
    double *a = own + HC_PTQ_BLOCK * n, *b = a + n;
    memset(a, 0, 2 * (size_t)n * sizeof *a);
    for (int64_t j = begin; j < end; j++)
        hc_ptq_factors(rows, j, first, n, job->fixed + j * grid->rows + first, factors + (j - begin) * n);
    for (int64_t block = begin; block < end; block += HC_PTQ_BLOCK) {
        const int64_t count = hc_min(HC_PTQ_BLOCK, end - block);
        memset(slopes, 0, (size_t)(count * n) * sizeof *slopes);
        memset(own, 0, (size_t)(count * n) * sizeof *own);
        hc_ptq_multiply(rows->gemm, count, n, k, 1.0, job->h + block, k, errors, n, slopes, n,
                        hc_ptq_pack(rows, thread));
        hc_ptq_multiply(rows->gemm, count, n, end - begin, 1.0, job->h + begin * k + block, k, factors, n, own, n,
                        hc_ptq_pack(rows, thread));
        for (int64_t j = 0; j < count; j++) {
            const double *c = factors + (block - begin + j) * n;
            for (int64_t i = 0; i < n; i++) {
                a[i] = a[i] + c[i] * slopes[j * n + i];
                b[i] = b[i] + c[i] * own[j * n + i];
            }
        }
    }
    double *scale = grid->scale + grid->group[begin] * grid->rows + first;
    int64_t changed = 0;
    for (int64_t i = 0; i < n; i++) {
        const double wanted = scale[i] + a[i] / b[i];
        if (!(b[i] > 0) || !(wanted > 0) || !(scale[i] > 0))
            continue;
        const double next = stored_scale(job->scales, first + i, wanted), change = next - scale[i];
        if (next > 0 && change * (2 * a[i] - change * b[i]) > 0) {
            scale[i] = next;
            changed++;
        }
    }
    for (int64_t j = begin; j < end; j++) {
        const double *x = job->w + j * grid->rows + first, *c = factors + (j - begin) * n;
        for (int64_t i = 0; i < n; i++)
            errors[j * n + i] = x[i] - scale[i] * c[i];
    }
    return changed;
}

static void refit_task(void *context, int64_t task, int thread) {
    const descent_job *job = context;
    const hc_ptq_rows *rows = &job->rows;
    const hc_ptq_grid *grid = rows->grid;
    const int64_t k = grid->columns, first = task * rows->width, n = hc_min(rows->width, grid->rows - first);
    double *errors = rows->scratch + thread * rows->scratch_size;
    int64_t changed = 0;
    hc_ptq_errors(rows, job->w, job->fixed, first, n, errors);
    for (int64_t begin = 0, end; begin < k; begin = end) {
        for (end = begin + 1; end < k && grid->group[end] == grid->group[begin]; end++)
            ;
        changed += refit_group(job, thread, begin, end, first, n, errors, errors + k * n);
    }
    job->changed[task] = changed;
}

hc_status hc_ptq_refit(const hc_run *run, const hc_ptq_grid *grid, const double *w, const double *h,
                       const int32_t *codes, const hc_ptq_scales *scales, int64_t *changed, hc_error *error) {
    int64_t longest = 0;
    for (int64_t begin = 0, end; begin < grid->columns; begin = end) {
        for (end = begin + 1; end < grid->columns && grid->group[end] == grid->group[begin]; end++)
            ;
        longest = hc_max(longest, end - begin);
    }
    descent_job job = {.w = w, .h = h, .fixed = codes, .scales = scales};
    return descend(run, grid, grid->columns + longest + 2 * HC_PTQ_BLOCK + 2, refit_task, &job, changed, error);
}
