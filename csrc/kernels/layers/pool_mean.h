/* The means of the windows of a plane, some registers of outputs at a time: kernels/layers/layers.h. One file per
 * instruction set compiles it, after the definition of HC_DOUBLES, the float64 values per register.
 *
 * Pixels outside of the plane are zeros in `work`: the sums begin with +0, so that a zero changes none of them.
 */
#include "kernels/kernel.h"

#include <string.h>

typedef double hc_doubles __attribute__((vector_size(8 * HC_DOUBLES), aligned(4), may_alias));
typedef float hc_half __attribute__((vector_size(4 * HC_DOUBLES), aligned(4), may_alias));

enum { TOGETHER = 4, NARROW = 5 };

typedef struct {
    const hc_pool_plane *plane;
    int64_t phases, phase, row, rows; /* phases per row; floats per phase, per row; rows in `work` */
    double count, factor;             /* of the sums; factor 0: they are divided by the count */
} mean_job;

/* Copies row h of pixels to `work`. */
static void copy_row(const mean_job *job, int64_t h) {
    const hc_pool_plane *p = job->plane;
    const int64_t stride = p->stride[1], left = p->left;
    const float *from = p->x + h * p->width;
    float *to = p->work + h % job->rows * job->row;
    for (int64_t f = 0; f < job->phases; f++, to += job->phase) {
        const int64_t begin = left > f ? hc_ceil_div(left - f, stride) : 0, first = f + begin * stride - left;
        const int64_t room = job->phase - 8 - begin;
        const int64_t n = first < p->width ? hc_min(room, hc_ceil_div(p->width - first, stride)) : 0;
        if (stride == 1 && n > 0)
            memcpy(to + begin, from + first, (size_t)n * sizeof *to);
        else
            for (int64_t i = 0; i < n; i++)
                to[begin + i] = from[first + i * stride];
    }
}

/* The means of n registers of windows from window q on; rows [h, end) of the plane. */
static inline __attribute__((always_inline)) void add_windows(const mean_job *job, const int n, int64_t h, int64_t end,
                                                              int64_t q, hc_half *means) {
    const hc_pool_plane *p = job->plane;
    hc_doubles sums[TOGETHER] = {{0}};
    for (; h < end; h++) {
        const float *from = p->work + h % job->rows * job->row + q;
        for (int64_t s = 0, f = 0, at = 0; s < p->size[1]; s++) {
#pragma GCC unroll 4
            for (int i = 0; i < n; i++)
                sums[i] += __builtin_convertvector(*(const hc_half *)(from + at + i * HC_DOUBLES), hc_doubles);
            at += job->phase;
            if (++f == p->stride[1]) {
                at -= f * job->phase - 1;
                f = 0;
            }
        }
    }
#pragma GCC unroll 4
    for (int i = 0; i < n; i++)
        means[i] = __builtin_convertvector(job->factor > 0 ? sums[i] * job->factor : sums[i] / job->count, hc_half);
}

/* The means of rows of few windows, from the pixels themselves. */
static void mean_narrow(const mean_job *job) {
    const hc_pool_plane *p = job->plane;
    for (int64_t q = 0; q < p->n; q++) {
        const int64_t left = q * p->stride[1] - p->left;
        const int64_t begin = hc_max(left, 0), columns = hc_min(left + p->size[1], p->width) - begin;
        for (int64_t i = 0; i < p->down; i++) {
            const int64_t first = i * p->stride[0] - p->top, end = hc_min(first + p->size[0], p->height);
            double sum = 0;
            for (int64_t h = hc_max(first, 0); h < end; h++) {
                const float *from = p->x + h * p->width + begin;
                for (int64_t s = 0; s < columns; s++)
                    sum += (double)from[s];
            }
            p->c[i * p->n + q] = (float)(job->factor > 0 ? sum * job->factor : sum / job->count);
        }
    }
}

/* The means of a row of n >= at_once * HC_DOUBLES windows; the last registers may repeat some. */
static inline __attribute__((always_inline)) void mean_row(const mean_job *job, const int at_once, int64_t h,
                                                           int64_t end, float *c) {
    const int64_t n = job->plane->n, step = at_once * HC_DOUBLES;
    for (int64_t q = 0; q < n; q += step) {
        const int64_t at = hc_min(q, n - step);
        add_windows(job, at_once, h, end, at, (hc_half *)(c + at));
    }
}

static void mean_plane(const hc_pool_plane *p) {
    const int64_t taps = p->size[0] * p->size[1];
    const bool is_power = (taps & (taps - 1)) == 0; /* of 2: times 1 / taps is the same and takes less time */
    const mean_job job = {.plane = p,
                          .phases = hc_min(p->size[1], p->stride[1]),
                          .phase = hc_pool_phase(p->n, p->size[1], p->stride[1]),
                          .row = hc_pool_mean_work(p->n, p->size[1], p->stride[1]),
                          .rows = hc_pool_mean_rows(p->height, p->size[0]),
                          .count = (double)taps,
                          .factor = is_power ? 1 / (double)taps : 0};
    if (p->n < hc_max(HC_DOUBLES, NARROW)) {
        mean_narrow(&job);
        return;
    }
    float *c = p->c;
    int64_t copied = 0; /* rows of pixels, those that no window has included */
    memset(p->work, 0, (size_t)(job.rows * job.row) * sizeof *p->work);
    for (int64_t i = 0; i < p->down; i++, c += p->n) {
        const int64_t first = i * p->stride[0] - p->top;
        const int64_t h = hc_max(first, 0), end = hc_min(first + p->size[0], p->height);
        for (copied = hc_max(copied, h); copied < end; copied++)
            copy_row(&job, copied);
        if (p->n >= TOGETHER * HC_DOUBLES)
            mean_row(&job, TOGETHER, h, end, c);
        else if (p->n >= 2 * HC_DOUBLES)
            mean_row(&job, 2, h, end, c);
        else
            mean_row(&job, 1, h, end, c);
    }
}
