/* Sums of inputs, their factor and their largest eigenvalue. The update of the trailing part is a matmul over descending depth, the order of an
 * unblocked factorization, so blocks change no bit.
 */
#include "base/threads.h"
#include "ptq/ptq.h"
#include "ptq/tiles.h"

#include <math.h>
#include <string.h>

enum { STRIP = 192, PANEL = 96, STEP = 512 };

/* Memory for HC_PTQ_PACK items per thread, followed by `more` items. */
static double *pack_space(const hc_run *run, int64_t more, hc_error *error) {
    double *space = hc_alloc_aligned((run->n_threads * (int64_t)HC_PTQ_PACK + more) * (int64_t)sizeof *space);
    if (!space)
        hc_fail(error, HC_MEMORY, "ptq: not enough memory for tiles of %d threads", run->n_threads);
    return space;
}

typedef struct {
    const hc_kernel *gemm;
    int64_t tokens, columns;
    const double *left, *right;
    double *sum, *pack; /* HC_PTQ_PACK of each thread */
} gram_job;

static void gram_strip(void *context, int64_t task, int thread) {
    const gram_job *job = context;
    const int64_t k = job->columns, first = task * STRIP, width = hc_min(STRIP, k - first);
    const int64_t rows = job->left == job->right ? first + width : k; /* above the diagonal */
    for (int64_t t = 0; t < job->tokens; t += HC_PTQ_DEPTH)
        hc_ptq_multiply(job->gemm, rows, width, hc_min(HC_PTQ_DEPTH, job->tokens - t), 1.0, job->left + t * k, k,
                        job->right + t * k + first, k, job->sum + first, k, job->pack + thread * HC_PTQ_PACK);
}

hc_status hc_ptq_gram(const hc_run *run, int64_t tokens, int64_t columns, const double *left, const double *right,
                      double *sum, hc_error *error) {
    gram_job job = {HC_BEST(gemm_f64, run), tokens, columns, left, right, sum, pack_space(run, 0, error)};
    if (!job.pack)
        return HC_MEMORY;
    hc_parallel(run->n_threads, hc_ceil_div(columns, STRIP), gram_strip, &job);
    hc_free_aligned(job.pack);
    return HC_OK;
}

typedef struct {
    const hc_kernel *gemm;
    hc_axpy_f64_fn *axpy;
    int64_t columns, first, count; /* of the panel: columns first .. first + count - 1 */
    double *matrix, *panel;        /* panel[k][i] = column first + k, row i */
    double *pack;
} factor_job;

/* Solves rows low .. high - 1 of the panel with its diagonal block. */
static void panel_rows(const factor_job *job, int64_t low, int64_t high) {
    const int64_t n = job->columns;
    for (int64_t k = job->count - 1; k >= 0; k--) {
        double *row = job->panel + k * n;
        const double pivot = row[job->first + k];
        for (int64_t i = low; i < high; i++)
            row[i] = row[i] / pivot;
        for (int64_t m = k - 1; m >= 0; m--)
            job->axpy(high - low, -row[job->first + m], row + low, job->panel + m * n + low);
    }
}

static void panel_task(void *context, int64_t task, int thread) {
    (void)thread;
    const factor_job *job = context;
    const int64_t low = task * STEP, high = hc_min(low + STEP, job->first), n = job->columns;
    for (int64_t i = low; i < high; i++)
        for (int64_t k = 0; k < job->count; k++)
            job->panel[k * n + i] = job->matrix[i * n + job->first + k];
    panel_rows(job, low, high);
    for (int64_t i = low; i < high; i++)
        for (int64_t k = 0; k < job->count; k++)
            job->matrix[i * n + job->first + k] = job->panel[k * n + i];
}

static void trailing_task(void *context, int64_t task, int thread) {
    const factor_job *job = context;
    const int64_t n = job->columns, strips = hc_ceil_div(job->first, STRIP);
    const int64_t first = (strips - 1 - task) * STRIP, width = hc_min(STRIP, job->first - first);
    const double *last = job->panel + (job->count - 1) * n;
    hc_ptq_multiply(job->gemm, first + width, width, job->count, -1.0, last, -n, last + first, -n, job->matrix + first,
                    n, job->pack + thread * HC_PTQ_PACK);
}

/* Factors the diagonal block. Returns its first column whose pivot is invalid, or -1. */
static int64_t diagonal_block(const factor_job *job) {
    const int64_t n = job->columns, first = job->first;
    for (int64_t k = 0; k < job->count; k++)
        for (int64_t i = 0; i <= k; i++)
            job->panel[k * n + first + i] = job->matrix[(first + i) * n + first + k];
    for (int64_t k = job->count - 1; k >= 0; k--) {
        double *row = job->panel + k * n + first;
        if (!(row[k] > 0) || !isfinite(row[k]))
            return first + k;
        row[k] = sqrt(row[k]);
        for (int64_t i = 0; i < k; i++)
            row[i] = row[i] / row[k];
        for (int64_t m = k - 1; m >= 0; m--)
            job->axpy(m + 1, -row[m], row, job->panel + m * n + first);
    }
    for (int64_t i = 0; i < job->count; i++)
        for (int64_t k = 0; k < job->count; k++)
            job->matrix[(first + i) * n + first + k] = k < i ? 0.0 : job->panel[k * n + first + i];
    return -1;
}

hc_status hc_ptq_factor(const hc_run *run, int64_t columns, double *matrix, double *diagonal, int64_t *failed,
                        hc_error *error) {
    *failed = -1;
    double *pack = pack_space(run, columns * PANEL, error);
    if (!pack)
        return HC_MEMORY;
    factor_job job = {HC_BEST(gemm_f64, run),
                      HC_PICK(axpy_f64, run),
                      columns,
                      0,
                      0,
                      matrix,
                      pack + run->n_threads * (int64_t)HC_PTQ_PACK,
                      pack};
    for (int64_t end = columns; end > 0 && *failed < 0; end -= job.count) {
        job.count = hc_min(PANEL, end);
        job.first = end - job.count;
        *failed = diagonal_block(&job);
        if (*failed >= 0)
            break;
        hc_parallel(run->n_threads, hc_ceil_div(job.first, STEP), panel_task, &job);
        hc_parallel(run->n_threads, hc_ceil_div(job.first, STRIP), trailing_task, &job);
    }
    hc_free_aligned(pack);
    for (int64_t i = 0; i < columns && *failed < 0; i++) {
        diagonal[i] = matrix[i * columns + i];
        memset(matrix + i * columns, 0, (size_t)i * sizeof *matrix);
    }
    for (int64_t i = 0; i < columns && *failed < 0; i++)
        for (int64_t j = i; j < columns; j++)
            matrix[i * columns + j] = matrix[i * columns + j] / diagonal[j];
    return HC_OK;
}

typedef struct {
    hc_axpy_f64_fn *axpy;
    int64_t columns;
    const double *matrix, *x;
    double *y;
} product_job;

static void product_task(void *context, int64_t task, int thread) {
    (void)thread;
    const product_job *job = context;
    const int64_t first = task * STEP, n = hc_min(STEP, job->columns - first);
    memset(job->y + first, 0, (size_t)n * sizeof *job->y);
    for (int64_t i = 0; i < job->columns; i++)
        job->axpy(n, job->x[i], job->matrix + i * job->columns + first, job->y + first);
}

hc_status hc_ptq_largest(const hc_run *run, int64_t columns, const double *matrix, int steps, double *largest,
                         hc_error *error) {
    int64_t bytes;
    double *x = hc_mul_size(columns, 2 * (int64_t)sizeof *x, &bytes) ? hc_alloc_aligned(bytes) : NULL;
    if (!x)
        return hc_fail(error, HC_MEMORY, "ptq: not enough memory for two vectors of %lld columns", (long long)columns);
    product_job job = {HC_PICK(axpy_f64, run), columns, matrix, x, x + columns};
    for (int64_t i = 0; i < columns; i++)
        x[i] = 1.0;
    *largest = 0.0;
    for (int step = 0; step < steps; step++) {
        hc_parallel(run->n_threads, hc_ceil_div(columns, STEP), product_task, &job);
        double sum = 0.0;
        for (int64_t i = 0; i < columns; i++)
            sum = sum + job.y[i] * job.y[i];
        *largest = sum > 0 ? sqrt(sum) : 0.0;
        if (!(sum > 0))
            break;
        for (int64_t i = 0; i < columns; i++)
            x[i] = job.y[i] / *largest;
    }
    hc_free_aligned(x);
    return HC_OK;
}
