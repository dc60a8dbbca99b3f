/* Pruning to N:M: rows of any view, block by block, to kept values and their positions. */
#include "base/convert.h"
#include "base/threads.h"
#include "kernels/kernel.h"
#include "ops/check.h"
#include "ops/rows.h"
#include "sparsity/nm.h"

#include <math.h>
#include <stdatomic.h>

/* Values of a task: x, scores and what is kept of them stay in the second cache. Tasks begin at bytes of the metadata. */
enum { TASK_VALUES = 1 << 14, ACROSS_ROWS = 64, MOST_LINES = 4 };

typedef struct {
    int n, m;
    hc_geometry geometry; /* padded in blocks of m */
    hc_row_view x, scores;
    bool has_scores, direct;
    hc_choose_nm_fn *choose[MOST_LINES]; /* best first, NULL behind the last */
    float *values;
    uint8_t *metadata;
    int64_t row_bytes;
    int64_t task_rows, task_columns, column_tasks, ld;
    float *scratch;
    int64_t scratch_floats; /* of one thread */
    atomic_bool has_nan;
} hc_prune_job;

/* Rows of the task at hand as float32, `ld` apart; float64 is rounded in place. */
static void fetch(const hc_row_view *view, int64_t row, int64_t rows, int64_t column, int64_t columns, float *values) {
    hc_rows_gather(view, row, rows, column, columns, values, columns);
    if (hc_rows_dtype(view) == HC_F64)
        for (int64_t i = 0; i < rows * columns; i++)
            values[i] = (float)hc_load_f64((const char *)values + i * 8);
}

/* Columns that only fill the last block of a run are the last to be kept. */
static void lower_padding(const hc_prune_job *job, int64_t column, int64_t columns, float *scores) {
    const int64_t padded = job->geometry.groups_per_run * job->m;
    for (int64_t c = 0; c < columns && padded > job->geometry.whole_length; c++)
        if ((column + c) % padded >= job->geometry.whole_length)
            scores[c] = -INFINITY;
}

static void prune_task(void *context, int64_t task, int thread) {
    hc_prune_job *job = context;
    const int n = job->n, m = job->m, bits = hc_position_bits(m);
    const int64_t column = task % job->column_tasks * job->task_columns;
    const int64_t columns = hc_min(job->task_columns, job->geometry.padded - column), blocks = columns / m;
    const int64_t first = task / job->column_tasks * job->task_rows;
    const int64_t end = hc_min(first + job->task_rows, job->geometry.rows);
    float *own = job->scratch + thread * job->scratch_floats, *own_scores = own + job->scratch_floats / 2;
    if (!job->direct)
        fetch(&job->x, first, end - first, column, columns, own);
    if (job->has_scores)
        fetch(&job->scores, first, end - first, column, columns, own_scores);
    for (int64_t row = first; row < end; row++) {
        const float *x = own + (row - first) * columns, *scores = NULL;
        hc_float_rows direct;
        if (job->direct && hc_rows_direct(&job->x, row, &direct))
            x = (const float *)direct.data + column;
        if (job->has_scores) {
            lower_padding(job, column, columns, own_scores + (row - first) * columns);
            scores = own_scores + (row - first) * columns;
        }
        float *values = job->values + row * (job->geometry.padded / m * n) + column / m * n;
        uint8_t *metadata = job->metadata + row * job->row_bytes + column / m * n * bits / 8;
        int64_t done = HC_DECLINED;
        for (int i = 0; done == HC_DECLINED && job->choose[i]; i++)
            done = job->choose[i](n, m, blocks, x, scores, values, metadata);
        if (done == HC_DECLINED)
            done = hc_nm_choose(n, m, blocks, x, scores, values, metadata);
        if (done != HC_DONE)
            atomic_store(&job->has_nan, true);
    }
}

/* Rows in padded columns: groups are blocks of m. */
static hc_status check_pruning(const hc_view *x, int n, int m, int n_axes, const int *axes, hc_geometry *g,
                               int64_t *row_bytes, hc_error *error) {
    if (n < 1 || n > m || m > HC_MAX_M)
        return hc_fail(error, HC_VALUE, "prune: keeps %d of every %d values, wanted 1 <= N <= M <= %d", n, m, HC_MAX_M);
    hc_status status = hc_check_view("prune: w", x, error);
    if (status == HC_OK)
        status = hc_check_rows(x->ndim, x->shape, n_axes, axes, g, error);
    if (status != HC_OK)
        return status;
    int64_t values, bytes;
    g->group = m;
    g->groups_per_run = hc_ceil_div(g->run_length, m);
    if (!hc_mul_size(g->groups_per_run, g->runs, &g->groups) || !hc_mul_size(g->groups, m, &g->padded) ||
        !hc_mul_size(g->padded, hc_max(g->rows, 1), &values) || !hc_mul_size(values, 8, &bytes))
        return hc_fail(error, HC_VALUE, "prune: the sizes of w overflow");
    *row_bytes = hc_ceil_div(g->groups * n * hc_position_bits(m), 8);
    return HC_OK;
}

hc_status hc_prune_sizes(const hc_view *x, int n, int m, int n_axes, const int *axes, int64_t *values, int64_t *bytes,
                         hc_error *error) {
    hc_geometry g = {0};
    int64_t row_bytes = 0;
    const hc_status status = check_pruning(x, n, m, n_axes, axes, &g, &row_bytes, error);
    *values = g.rows * g.groups * n;
    *bytes = g.rows * row_bytes;
    return status;
}

hc_status hc_prune(const hc_run *run, const hc_view *x, const hc_view *scores, int n, int m, int n_axes,
                   const int *axes, float *values, uint8_t *metadata, hc_error *error) {
    hc_prune_job job = {.n = n, .m = m, .has_scores = scores != NULL, .values = values, .metadata = metadata};
    hc_status status = check_pruning(x, n, m, n_axes, axes, &job.geometry, &job.row_bytes, error);
    if (status == HC_OK && scores)
        status = hc_check_view("prune: scores", scores, error);
    if (status != HC_OK)
        return status;
    for (int i = 0; scores && i < x->ndim; i++)
        if (scores->ndim != x->ndim || scores->shape[i] != x->shape[i])
            return hc_fail(error, HC_VALUE, "prune: scores has another shape than w");
    const hc_geometry *g = &job.geometry;
    if (g->rows == 0 || g->padded == 0)
        return HC_OK;
    hc_rows_init(&job.x, x, g, n_axes, axes);
    hc_float_rows direct;
    job.direct = x->dtype == HC_F32 && hc_rows_direct(&job.x, 0, &direct);
    if (scores)
        hc_rows_init(&job.scores, scores, g, n_axes, axes);
    const hc_kernel *line = NULL;
    for (int i = 0; i + 1 < MOST_LINES && (line = hc_kernel_pick("choose_nm", run->isa, line)); i++)
        job.choose[i] = (hc_choose_nm_fn *)line->fn;
    const int64_t wanted = !job.direct && hc_rows_across(&job.x) ? TASK_VALUES / ACROSS_ROWS : TASK_VALUES;
    job.task_columns = hc_min(hc_max(wanted / (8 * m), 1) * 8 * m, g->padded);
    job.task_rows = hc_max(TASK_VALUES / job.task_columns, 1);
    job.column_tasks = hc_ceil_div(g->padded, job.task_columns);
    const int64_t n_tasks = hc_ceil_div(g->rows, job.task_rows) * job.column_tasks;
    const int n_threads = (int)hc_min(hc_min(run->n_threads, HC_MAX_THREADS), n_tasks);
    const int64_t size = x->dtype == HC_F64 || (scores && scores->dtype == HC_F64) ? 2 : 1; /* before it is rounded */
    job.scratch_floats = 2 * hc_round_up(job.task_rows * job.task_columns * size, 16);
    job.scratch = hc_alloc_aligned(n_threads * job.scratch_floats * (int64_t)sizeof(float));
    if (!job.scratch)
        return hc_fail(error, HC_MEMORY, "prune: no memory for %d threads", n_threads);
    hc_parallel(n_threads, n_tasks, prune_task, &job);
    hc_free_aligned(job.scratch);
    if (atomic_load(&job.has_nan))
        return hc_fail(error, HC_VALUE, "prune: %s has a NaN", scores ? "scores" : "w");
    return HC_OK;
}
