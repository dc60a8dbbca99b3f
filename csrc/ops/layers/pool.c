/* Maxima and means of windows; hc.h states them. A task is a plane of an image.
 *
 * Memory: for each thread a padded row of pixels, for means as many as a window has.
 */
#include "base/threads.h"
#include "hc_layers.h"
#include "kernels/kernel.h"
#include "ops/check.h"

typedef struct {
    const hc_pool *pool;
    hc_pool_max_fn *pool_plane;
    uint8_t *memory;
    int64_t thread_bytes;
} pool_job;

static void pool_task(void *context, int64_t task, int thread) {
    const pool_job *job = context;
    const hc_pool *pool = job->pool;
    uint8_t *own = job->memory + thread * job->thread_bytes;
    job->pool_plane(&(hc_pool_plane){.x = pool->x + task * pool->height * pool->width,
                                     .height = pool->height,
                                     .width = pool->width,
                                     .top = pool->pad_before[0],
                                     .left = pool->pad_before[1],
                                     .size = {pool->size[0], pool->size[1]},
                                     .stride = {pool->stride[0], pool->stride[1]},
                                     .down = pool->out_height,
                                     .n = pool->out_width,
                                     .work = (float *)(void *)own,
                                     .c = pool->out + task * pool->out_height * pool->out_width});
}

/* Products of two of them and their sums do not overflow. */
static bool is_size(int64_t n) { return n < (int64_t)1 << 31; }

hc_status hc_pool2d(const hc_run *run, const hc_pool *pool, hc_error *error) {
    if (pool->planes <= 0 || pool->out_height <= 0 || pool->out_width <= 0)
        return HC_OK;
    int64_t floats, bytes;
    for (int i = 0; i < 2; i++)
        if (!is_size(pool->size[i]) || !is_size(pool->stride[i]) || !is_size(pool->pad_before[i]))
            return hc_fail(error, HC_MEMORY, "pool2d: not enough memory");
    if (!hc_mul_size(pool->out_width, pool->stride[1], &floats))
        return hc_fail(error, HC_MEMORY, "pool2d: not enough memory");
    const int64_t n = pool->out_width, size = pool->size[1], stride = pool->stride[1];
    const int64_t mean_rows = hc_pool_mean_rows(pool->height, pool->size[0]);
    int64_t work = hc_pool_work(n, size, stride);
    if ((pool->means && !hc_mul_size(mean_rows, hc_pool_mean_work(n, size, stride), &work)) ||
        !hc_mul_size(work, (int64_t)sizeof(float) * HC_MAX_THREADS, &bytes))
        return hc_fail(error, HC_MEMORY, "pool2d: not enough memory");
    pool_job job = {.pool = pool,
                    .pool_plane = pool->means ? HC_PICK(pool_mean, run) : HC_PICK(pool_max, run),
                    .thread_bytes = hc_round_up(work * (int64_t)sizeof(float), HC_CACHE_LINE)};
    const int n_threads = (int)hc_min(run->n_threads, pool->planes);
    job.memory = hc_alloc_aligned(n_threads * job.thread_bytes);
    if (!job.memory)
        return hc_fail(error, HC_MEMORY, "pool2d: not enough memory");
    hc_parallel(n_threads, pool->planes, pool_task, &job);
    hc_free_aligned(job.memory);
    return HC_OK;
}
