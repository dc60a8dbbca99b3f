/* Few windows times filters as they are stored; few.h. */
#include "ops/conv/direct/few.h"

#include "base/threads.h"
#include "kernels/kernel.h"
#include "ops/conv/windows.h"

#include <string.h>

enum {
    MOST_WINDOWS = 8,
    TASK_FILTERS = 4 * HC_GEMV_DENSE_ROWS,
};

typedef struct {
    const hc_convolution *conv;
    hc_gemv_dense_fn *kernel;
    const float *windows; /* of this group, `columns` each */
    int64_t n_windows, columns, group, filters;
    hc_rows out; /* of this group */
} few_job;

static int64_t windows_of(const hc_conv_shape *s) { return s->n * s->out_height * s->out_width; }

/* True if the values of a filter are contiguous in the order of the sums: r, s, c. */
static bool are_chains(const hc_view *w, const hc_conv_shape *s) {
    const int64_t pixel = s->group_channels * (int64_t)sizeof(float);
    return w->dtype == HC_F32 && (w->strides[1] == sizeof(float) || s->group_channels == 1) &&
           (w->strides[3] == pixel || s->s == 1) && (w->strides[2] == s->s * pixel || s->r == 1);
}

bool hc_conv_is_few(const hc_convolution *conv) {
    const hc_conv_shape *s = &conv->shape;
    return conv->order == HC_CONV_FLOATS && !conv->w->packed && !conv->filters && windows_of(s) <= MOST_WINDOWS &&
           s->filters / conv->window->groups >= HC_GEMV_DENSE_UNIT && are_chains(conv->w->dense, s);
}

static void store(const few_job *job, int64_t window, int64_t first, int64_t n, const float *sums) {
    const hc_convolution *conv = job->conv;
    char *to = hc_row(&job->out, window) + first * job->out.column_stride;
    for (int64_t i = 0; i < n; i++, to += job->out.column_stride) {
        float bias = -0.0f;
        if (conv->bias)
            memcpy(&bias,
                   (const char *)conv->bias->data + (job->group * job->filters + first + i) * conv->bias->strides[0],
                   sizeof bias);
        const float value = hc_finished(sums[i], bias, conv->relu);
        memcpy(to, &value, sizeof value);
    }
}

static void few_task(void *context, int64_t task, int thread) {
    (void)thread;
    const few_job *job = context;
    const hc_view *w = job->conv->w->dense;
    const int64_t end = hc_min((task + 1) * TASK_FILTERS, job->filters);
    for (int64_t first = task * TASK_FILTERS; first < end; first += HC_GEMV_DENSE_ROWS) {
        const int64_t n_rows = hc_min(HC_GEMV_DENSE_ROWS, end - first);
        const int read = (int)hc_round_up(n_rows, HC_GEMV_DENSE_UNIT);
        const float *rows[HC_GEMV_DENSE_ROWS];
        for (int64_t i = 0; i < read; i++) { /* rows after the last repeat the last */
            const int64_t filter = job->group * job->filters + first + hc_min(i, n_rows - 1);
            rows[i] = (const float *)(const void *)((const char *)w->data + filter * w->strides[0]);
        }
        for (int64_t v = 0; v < job->n_windows;) {
            float sums[HC_GEMV_VECTORS * HC_GEMV_DENSE_ROWS];
            const int64_t left = job->n_windows - v, n = left >= 4 ? 4 : left >= 2 ? 2 : 1;
            job->kernel(job->columns, read, rows, true, (int)n, job->windows + v * job->columns, job->columns, sums);
            for (int64_t j = 0; j < n; j++)
                store(job, v + j, first, n_rows, sums + j * HC_GEMV_DENSE_ROWS);
            v += n;
        }
    }
}

hc_status hc_conv_few_run(const hc_convolution *conv, hc_error *error) {
    const hc_conv_shape *s = &conv->shape;
    few_job job = {.conv = conv,
                   .kernel = HC_PICK(gemv_dense, conv->run),
                   .n_windows = windows_of(s),
                   .columns = s->r * s->s * s->group_channels,
                   .filters = s->filters / conv->window->groups};
    float *windows = hc_alloc_aligned(job.n_windows * job.columns * (int64_t)sizeof *windows);
    if (!windows)
        return hc_fail(error, HC_MEMORY, "conv2d: not enough memory for %lld windows", (long long)job.n_windows);
    job.windows = windows;
    for (; job.group < conv->window->groups; job.group++) {
        hc_window_rows(conv, job.group, 0, job.n_windows, windows);
        job.out = hc_answer_rows(conv->out, s, 0, s->n, job.group * job.filters);
        hc_parallel(conv->run->n_threads, hc_ceil_div(job.filters, TASK_FILTERS), few_task, &job);
    }
    hc_free_aligned(windows);
    return HC_OK;
}
