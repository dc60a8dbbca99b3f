/* Errors of weights at the output of their layer: e^T H e of each row, from the upper triangle of blocks of H. */
#include "base/threads.h"
#include "ptq/ptq.h"
#include "ptq/tiles.h"

#include <string.h>

enum { WIDTH = 64, SLOPES = HC_PTQ_BLOCK * WIDTH };

typedef struct {
    const hc_kernel *gemm;
    int64_t columns, rows;
    const double *errors, *h;
    double *sums, *scratch; /* 2 SLOPES and HC_PTQ_PACK of each thread */
} losses_job;

static void losses_task(void *context, int64_t task, int thread) {
    const losses_job *job = context;
    const int64_t k = job->columns, first = task * WIDTH, n = hc_min(WIDTH, job->rows - first);
    double *slopes = job->scratch + thread * (int64_t)(2 * SLOPES + HC_PTQ_PACK);
    memset(job->sums + first, 0, (size_t)n * sizeof *job->sums);
    for (int64_t block = 0; block < k; block += HC_PTQ_BLOCK) {
        const int64_t count = hc_min(HC_PTQ_BLOCK, k - block);
        memset(slopes, 0, (size_t)(2 * SLOPES) * sizeof *slopes);
        hc_ptq_multiply(job->gemm, count, n, block, 1.0, job->h + block, k, job->errors + first, job->rows, slopes, n,
                        slopes + 2 * SLOPES);
        hc_ptq_multiply(job->gemm, count, n, count, 1.0, job->h + block * k + block, k,
                        job->errors + block * job->rows + first, job->rows, slopes + SLOPES, n, slopes + 2 * SLOPES);
        for (int64_t j = 0; j < count; j++) {
            const double *e = job->errors + (block + j) * job->rows + first;
            const double *before = slopes + j * n, *inside = before + SLOPES;
            for (int64_t i = 0; i < n; i++)
                job->sums[first + i] = job->sums[first + i] + e[i] * (before[i] + before[i] + inside[i]);
        }
    }
}

hc_status hc_ptq_losses(const hc_run *run, int64_t columns, int64_t rows, const double *errors, const double *h,
                        double *sums, hc_error *error) {
    losses_job job = {.gemm = HC_BEST(gemm_f64, run), .columns = columns, .rows = rows, .errors = errors, .h = h};
    job.sums = sums;
    job.scratch = hc_alloc_aligned(run->n_threads * (int64_t)(2 * SLOPES + HC_PTQ_PACK) * (int64_t)sizeof *job.scratch);
    if (!job.scratch)
        return hc_fail(error, HC_MEMORY, "ptq: not enough memory for tiles of %d threads", run->n_threads);
    hc_parallel(run->n_threads, hc_ceil_div(rows, WIDTH), losses_task, &job);
    hc_free_aligned(job.scratch);
    return HC_OK;
}
