/* Coordinate descent under H: on codes (Behdin et al., "QuantEase", 2023, arXiv 2309.01885), and on stored scales,
 * which is the same with one more factor. Each step is an exact minimum, so the error never rises. The slopes of a
 * group of rows are computed by one product and then updated: few codes change in a sweep, and only their changes are
 * added.
 */
#include "base/convert.h"
#include "ptq/grid.h"

#include <float.h>
#include <math.h>
#include <stdatomic.h>
#include <string.h>

/* Columns whose changes are added at once, and slopes that fit into a cache together. */
enum { BLOCK = 64, STRIP = 512 };

typedef struct {
    hc_ptq_rows rows;
    const double *w, *h;
    const hc_ptq_scales *scales;
    const hc_ptq_budget *budget;
    int sweeps, refits;
    int32_t *codes;
    int64_t longest;      /* the longest group, at least BLOCK */
    int64_t slope_stride; /* no power of two */
    _Atomic int64_t *changed;
} descent_job;

/* Some rows. */
typedef struct {
    const descent_job *job;
    int64_t first, n;
    double *errors;    /* (columns, n) */
    double *changes;   /* (longest, n), of errors */
    double *slopes;    /* (n, slope_stride): sum over i of errors[i] * h[i][j] */
    double *block;     /* (max(BLOCK, HC_PTQ_BLOCK), n) */
    double *a, *b, *c; /* (n) */
    double *pack;
    bool rests[HC_PTQ_WIDTH]; /* a sweep changed no code of the row */
} descent_rows;

/* Adds the changes of few errors of columns from .. from + count - 1, count <= BLOCK, to the slopes. */
static void add_some(const descent_rows *own, int64_t from, int64_t count, const double *changes) {
    const descent_job *job = own->job;
    const int64_t k = job->rows.grid->columns, n = own->n;
    uint8_t moved[HC_PTQ_WIDTH][BLOCK];
    int counts[HC_PTQ_WIDTH] = {0};
    for (int64_t j = 0; j < count; j++)
        for (int64_t i = 0; i < n; i++) {
            moved[i][counts[i]] = (uint8_t)j;
            counts[i] += changes[j * n + i] != 0;
        }
    for (int64_t at = 0; at < k; at += STRIP)
        for (int64_t i = 0; i < n; i++)
            for (int m = 0; m < counts[i]; m++)
                job->rows.axpy(hc_min(STRIP, k - at), changes[moved[i][m] * n + i],
                               job->h + (from + moved[i][m]) * k + at, own->slopes + i * job->slope_stride + at);
}

/* Adds own->changes of columns from .. from + count - 1 to the slopes, ascending; errors without a change add 0. */
static void add_changes(const descent_rows *own, int64_t from, int64_t count) {
    const descent_job *job = own->job;
    const int64_t k = job->rows.grid->columns, n = own->n;
    int64_t some = 0;
    for (int64_t i = 0; i < count * n; i++)
        some += own->changes[i] != 0;
    if (3 * some > count * n) { /* a product is about three times as fast per change */
        hc_ptq_multiply(job->rows.gemm, n, k, count, 1.0, own->changes, n, job->h + from * k, k, own->slopes,
                        job->slope_stride, own->pack);
        return;
    }
    for (int64_t at = 0; some && at < count; at += BLOCK)
        add_some(own, from + at, hc_min(BLOCK, count - at), own->changes + at * n);
}

/* Replaces a code by the former one in the sums of the budget. */
static void keep(const descent_job *job, int64_t column, int64_t row, double code, int32_t former) {
    const hc_ptq_grid *grid = job->rows.grid;
    const double zero = grid->zero ? grid->zero[grid->group[column] * grid->rows + row] : 0.0;
    const int64_t at = job->budget->segment[column] * grid->rows + row;
    hc_ptq_spend(job->budget, at, code - zero, -1);
    hc_ptq_spend(job->budget, at, (double)former - zero, 1);
}

/* One column: the rounded target replaces the current value if it is nearer to the target. `slopes` are those of the
 * column; its changes are written to `changes`. */
static int64_t step(descent_rows *own, int64_t column, const double *slopes, double *changes, bool *moved) {
    const descent_job *job = own->job;
    const hc_ptq_grid *grid = job->rows.grid;
    const int64_t n = own->n;
    const double *x = job->w + column * grid->rows + own->first, curvature = job->h[column * grid->columns + column];
    double *target = own->a, *code = own->b, *value = own->c, *left = own->errors + column * n;
    int32_t *codes = job->codes + column * grid->rows + own->first;
    const uint8_t *mask = hc_ptq_mask(grid, column, own->first);
    int64_t changed = 0;
    memset(changes, 0, (size_t)n * sizeof *changes);
    if (!(curvature > 0))
        return 0;
    for (int64_t i = 0; i < n; i++)
        target[i] = (x[i] - left[i]) + slopes[i] / curvature;
    hc_ptq_round(&job->rows, column, own->first, n, target, code, value);
    if (job->budget)
        hc_ptq_limit(&job->rows, job->budget, column, own->first, n, codes, code, value);
    for (int64_t i = 0; i < n; i++) {
        const double stands = x[i] - left[i];
        const bool nearer = (!mask || mask[i]) && fabs(target[i] - value[i]) < fabs(target[i] - stands);
        if (!nearer) {
            if (job->budget)
                keep(job, column, own->first + i, code[i], codes[i]);
            continue;
        }
        const bool other = codes[i] != (int32_t)code[i];
        const double next = x[i] - value[i];
        changes[i] = next - left[i];
        left[i] = next;
        changed += other;
        moved[i] |= other;
        codes[i] = (int32_t)code[i];
    }
    return changed;
}

/* Each column once. */
static int64_t sweep(descent_rows *own) {
    const descent_job *job = own->job;
    const int64_t k = job->rows.grid->columns, n = own->n;
    bool moved[HC_PTQ_WIDTH] = {false};
    int64_t changed = 0;
    for (int64_t from = 0; from < k; from += BLOCK) {
        const int64_t count = hc_min(BLOCK, k - from);
        for (int64_t i = 0; i < n; i++)
            for (int64_t j = 0; j < count; j++)
                own->block[j * n + i] = own->slopes[i * job->slope_stride + from + j];
        for (int64_t j = 0; j < count; j++) {
            double *changes = own->changes + j * n;
            hc_ptq_prefetch(job->rows.grid, job->w, sizeof *job->w, from + j, own->first, n);
            hc_ptq_prefetch(job->rows.grid, job->codes, sizeof *job->codes, from + j, own->first, n);
            const int64_t some = step(own, from + j, own->block + j * n, changes, moved);
            const double *h = job->h + (from + j) * k + from;
            for (int64_t later = j + 1; some && later < count; later++)
                job->rows.axpy(n, h[later], changes, own->block + later * n);
            changed += some;
        }
        add_changes(own, from, count);
    }
    for (int64_t i = 0; i < n; i++)
        own->rests[i] = !moved[i];
    return changed;
}

static double table_scale(const hc_ptq_scales *scales, double unit, int i) {
    const double exact = unit * scales->table[i];
    return scales->kind == HC_PTQ_TABLE_F32 ? (double)(float)exact : exact;
}

/* The storable scale nearest to t, the lower one if two are equally near. */
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

/* Refits the scale of one group, columns begin .. end - 1. */
static void refit_group(const descent_rows *own, int64_t begin, int64_t end) {
    const descent_job *job = own->job;
    const hc_ptq_rows *rows = &job->rows;
    const hc_ptq_grid *grid = rows->grid;
    const int64_t k = grid->columns, n = own->n, first = own->first;
    double *factors = own->changes, *a = own->a, *b = own->b,
           *scale = grid->scale + grid->group[begin] * grid->rows + first;
    memset(a, 0, (size_t)n * sizeof *a);
    memset(b, 0, (size_t)n * sizeof *b);
    for (int64_t j = begin; j < end; j++)
        hc_ptq_factors(rows, j, first, n, job->codes + j * grid->rows + first, factors + (j - begin) * n);
    for (int64_t i = 0; i < n; i++)
        for (int64_t j = begin; j < end; j++)
            a[i] = a[i] + factors[(j - begin) * n + i] * own->slopes[i * job->slope_stride + j];
    for (int64_t block = begin; block < end; block += HC_PTQ_BLOCK) {
        const int64_t count = hc_min(HC_PTQ_BLOCK, end - block);
        memset(own->block, 0, (size_t)(count * n) * sizeof *own->block);
        hc_ptq_multiply(rows->gemm, count, n, end - begin, 1.0, job->h + begin * k + block, k, factors, n, own->block,
                        n, own->pack);
        for (int64_t j = 0; j < count; j++)
            for (int64_t i = 0; i < n; i++)
                b[i] = b[i] + factors[(block - begin + j) * n + i] * own->block[j * n + i];
    }
    for (int64_t i = 0; i < n; i++) {
        const double wanted = scale[i] + a[i] / b[i];
        if (own->rests[i] || !(b[i] > 0) || !(wanted > 0) || !(scale[i] > 0))
            continue;
        const double next = stored_scale(job->scales, first + i, wanted), change = next - scale[i];
        if (next > 0 && change * (2 * a[i] - change * b[i]) > 0)
            scale[i] = next;
    }
    for (int64_t j = begin; j < end; j++) {
        const double *x = job->w + j * grid->rows + first;
        double *left = own->errors + j * n, *c = factors + (j - begin) * n;
        for (int64_t i = 0; i < n; i++) {
            const double next = x[i] - scale[i] * c[i];
            c[i] = next - left[i];
            left[i] = next;
        }
    }
    add_changes(own, begin, end - begin);
}

static int64_t group_end(const hc_ptq_grid *grid, int64_t begin) {
    int64_t end = begin + 1;
    while (end < grid->columns && grid->group[end] == grid->group[begin])
        end++;
    return end;
}

static void descend_task(void *context, int64_t task, int thread) {
    const descent_job *job = context;
    const hc_ptq_rows *rows = &job->rows;
    const hc_ptq_grid *grid = rows->grid;
    const int64_t k = grid->columns, first = task * rows->width, n = hc_min(rows->width, grid->rows - first);
    descent_rows own = {.job = job, .first = first, .n = n, .pack = hc_ptq_pack(rows, thread)};
    own.errors = rows->scratch + thread * rows->scratch_size;
    own.changes = own.errors + k * n;
    own.block = own.changes + job->longest * n;
    own.a = own.block + HC_PTQ_BLOCK * n;
    own.b = own.a + n;
    own.c = own.b + n;
    own.slopes = own.c + n;
    hc_ptq_errors(rows, job->w, job->codes, first, n, own.errors);
    memset(own.slopes, 0, (size_t)(n * job->slope_stride) * sizeof *own.slopes);
    hc_ptq_multiply(rows->gemm, n, k, k, 1.0, own.errors, n, job->h, k, own.slopes, job->slope_stride, own.pack);
    int64_t changed = 1;
    for (int round = 0; round < job->sweeps && changed; round++) {
        for (int64_t begin = 0; begin < k && round < job->refits; begin = group_end(grid, begin))
            refit_group(&own, begin, group_end(grid, begin));
        changed = sweep(&own);
        atomic_fetch_add(job->changed + round, changed);
    }
}

hc_status hc_ptq_descend(const hc_run *run, const hc_ptq_grid *grid, const double *w, const double *h,
                         const hc_ptq_scales *scales, const hc_ptq_budget *budget, int refits, int sweeps,
                         int32_t *codes, int64_t *changed, hc_error *error) {
    descent_job job = {.w = w, .h = h, .scales = scales, .budget = budget, .codes = codes, .longest = BLOCK};
    job.sweeps = sweeps;
    job.refits = scales ? refits : 0;
    for (int64_t begin = 0; begin < grid->columns && job.refits; begin = group_end(grid, begin))
        job.longest = hc_max(job.longest, group_end(grid, begin) - begin);
    job.slope_stride = hc_round_up(grid->columns, 16) + 8;
    hc_status status =
        hc_ptq_begin(run, grid, grid->columns + job.longest + HC_PTQ_BLOCK + 3 + job.slope_stride, &job.rows, error);
    if (status != HC_OK)
        return status;
    job.changed = hc_alloc_aligned((int64_t)sizeof *job.changed * hc_max(sweeps, 1));
    for (int round = 0; job.changed && round < sweeps; round++)
        atomic_init(job.changed + round, 0);
    if (job.changed)
        hc_parallel(run->n_threads, hc_ptq_tasks(&job.rows), descend_task, &job);
    else
        status = hc_fail(error, HC_MEMORY, "ptq: not enough memory for %d sweeps", sweeps);
    for (int round = 0; job.changed && round < sweeps; round++)
        changed[round] = atomic_load(job.changed + round);
    hc_free_aligned((void *)job.changed);
    hc_free_aligned(job.rows.scratch);
    return status;
}
