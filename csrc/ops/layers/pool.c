/* Maxima and means of windows; hc.h states them. A task is a plane of an image. A mean is a sum in float64, a row of
 * outputs at once, tap after tap.
 *
 * Memory: for each thread a padded row of pixels, or a row of sums.
 */
#include "base/threads.h"
#include "kernels/kernel.h"
#include "ops/check.h"

#include <string.h>

typedef struct {
    const hc_pool *pool;
    hc_pool_max_fn *maxima;
    uint8_t *memory;
    int64_t thread_bytes;
} pool_job;

static void add_row(const hc_pool *pool, const float *x, double *sum) {
    for (int64_t s = 0; s < pool->size[1]; s++) {
        const int64_t step = pool->stride[1], first = s - pool->pad_before[1]; /* column of output 0 */
        const int64_t begin = first >= 0 ? 0 : (-first + step - 1) / step;
        const int64_t end = first < pool->width ? hc_min(pool->out_width, (pool->width - 1 - first) / step + 1) : 0;
        const float *from = x + first;
        if (step == 1)
            for (int64_t q = begin; q < end; q++)
                sum[q] += (double)from[q];
        else
            for (int64_t q = begin; q < end; q++)
                sum[q] += (double)from[q * step];
    }
}

static void add_plane(const hc_pool *pool, const float *x, double *sum, float *out) {
    const double count = (double)(pool->size[0] * pool->size[1]);
    for (int64_t p = 0; p < pool->out_height; p++, out += pool->out_width) {
        const int64_t first = p * pool->stride[0] - pool->pad_before[0];
        const int64_t end = hc_min(first + pool->size[0], pool->height);
        memset(sum, 0, (size_t)pool->out_width * sizeof *sum);
        for (int64_t h = hc_max(first, 0); h < end; h++)
            add_row(pool, x + h * pool->width, sum);
        for (int64_t q = 0; q < pool->out_width; q++)
            out[q] = (float)(sum[q] / count);
    }
}

static void pool_task(void *context, int64_t task, int thread) {
    const pool_job *job = context;
    const hc_pool *pool = job->pool;
    uint8_t *own = job->memory + thread * job->thread_bytes;
    const float *x = pool->x + task * pool->height * pool->width;
    float *out = pool->out + task * pool->out_height * pool->out_width;
    if (pool->means) {
        add_plane(pool, x, (double *)(void *)own, out);
        return;
    }
    job->maxima(&(hc_pool_plane){.x = x,
                                 .height = pool->height,
                                 .width = pool->width,
                                 .top = pool->pad_before[0],
                                 .left = pool->pad_before[1],
                                 .size = {pool->size[0], pool->size[1]},
                                 .stride = {pool->stride[0], pool->stride[1]},
                                 .down = pool->out_height,
                                 .n = pool->out_width,
                                 .work = (float *)(void *)own,
                                 .c = out});
}

hc_status hc_pool2d(const hc_run *run, const hc_pool *pool, hc_error *error) {
    if (pool->planes <= 0 || pool->out_height <= 0 || pool->out_width <= 0)
        return HC_OK;
    int64_t floats;
    if (!hc_mul_size(pool->out_width, pool->stride[1], &floats))
        return hc_fail(error, HC_MEMORY, "pool2d: not enough memory");
    const int64_t row = hc_pool_work(pool->out_width, pool->size[1], pool->stride[1]) * (int64_t)sizeof(float);
    pool_job job = {.pool = pool,
                    .maxima = HC_PICK(pool_max, run),
                    .thread_bytes =
                        hc_round_up(pool->means ? pool->out_width * (int64_t)sizeof(double) : row, HC_CACHE_LINE)};
    const int n_threads = (int)hc_min(run->n_threads, pool->planes);
    job.memory = hc_alloc_aligned(n_threads * job.thread_bytes);
    if (!job.memory)
        return hc_fail(error, HC_MEMORY, "pool2d: not enough memory");
    hc_parallel(n_threads, pool->planes, pool_task, &job);
    hc_free_aligned(job.memory);
    return HC_OK;
}
