/* Rotation of heads by Sylvester's matrix, for caches of keys and values: blocks of rows for the thread pool. */
#include "base/threads.h"
#include "hc_layers.h"

#include <math.h>

enum { VALUES = 1 << 15 }; /* of a block: fewer values are not worth waking a thread */

typedef struct {
    int64_t rows, n, block; /* block in rows */
    float factor, *x;
} rotation;

static void rotate_row(int64_t n, float factor, float *x) {
    for (int64_t half = 1; half < n; half *= 2)
        for (int64_t first = 0; first < n; first += 2 * half)
            for (int64_t i = first; i < first + half; i++) {
                const float a = x[i], b = x[i + half];
                x[i] = a + b;
                x[i + half] = a - b;
            }
    for (int64_t i = 0; i < n; i++)
        x[i] *= factor;
}

static void rotate_block(void *context, int64_t task, int thread) {
    (void)thread;
    const rotation *job = context;
    const int64_t first = task * job->block, end = hc_min(first + job->block, job->rows);
    for (int64_t row = first; row < end; row++)
        rotate_row(job->n, job->factor, job->x + row * job->n);
}

void hc_rotate_heads(const hc_run *run, int64_t rows, int64_t n, float *x) {
    if (rows <= 0 || n <= 0)
        return;
    rotation job = {rows, n, hc_max(1, VALUES / n), (float)(1 / sqrt((double)n)), x};
    const int64_t tasks = hc_ceil_div(rows, job.block);
    hc_parallel((int)hc_min(run->n_threads, tasks), tasks, rotate_block, &job);
}
