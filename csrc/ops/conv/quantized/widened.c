/* Images as float32; widened.h. */
#include "ops/conv/quantized/widened.h"

#include "base/threads.h"
#include "ops/conv/quantized/images.h"

bool hc_widens(const hc_convolution *conv, hc_view *wide) {
    const hc_view *x = conv->x;
    const int64_t *shape = x->shape, size = sizeof(float);
    enum { FEW = 512 }; /* values, for which memory takes as long as packing */
    if (!conv->activations || (x->dtype != HC_F16 && x->dtype != HC_BF16) ||
        shape[0] * shape[1] * shape[2] * shape[3] < FEW)
        return false;
    const bool last = x->strides[1] < x->strides[3]; /* whether channels are adjacent */
    const int64_t pixel = last ? shape[1] * size : size, row = shape[3] * pixel;
    *wide = *x;
    wide->data = NULL;
    wide->dtype = HC_F32;
    wide->strides[3] = pixel;
    wide->strides[2] = row;
    wide->strides[1] = last ? size : shape[2] * row;
    wide->strides[0] = shape[1] * shape[2] * shape[3] * size;
    hc_convolution of_floats = *conv;
    of_floats.x = wide;
    return hc_lines_make_codes(&of_floats);
}

typedef struct {
    const hc_view *x, *wide;
    int64_t first;
    bool whole; /* an image has no gaps and the layout of `wide` */
} hc_widening;

static bool is_whole(const hc_view *x, const hc_view *wide) {
    const int64_t size = hc_dtype_size(x->dtype);
    for (int i = 1; i < 4; i++)
        if (x->shape[i] > 1 && x->strides[i] * (int64_t)sizeof(float) != wide->strides[i] * size)
            return false;
    return true;
}

/* As many values of an image as a row of pixels has, or the row itself. */
static void widen_task(void *context, int64_t task, int thread) {
    (void)thread;
    const hc_widening *job = context;
    const hc_view *x = job->x, *wide = job->wide;
    const int64_t *from = x->strides, *to = wide->strides, size = hc_dtype_size(x->dtype);
    const int64_t channels = x->shape[1], width = x->shape[3], n = width * channels;
    const int64_t image = task / x->shape[2], h = task % x->shape[2];
    const char *source = (const char *)x->data + (job->first + image) * from[0];
    char *target = (char *)wide->data + image * to[0];
    if (job->whole) {
        hc_read_floats(source + h * n * size, x->dtype, size, n,
                       (float *)(void *)(target + h * n * (int64_t)sizeof(float)));
        return;
    }
    const bool last = to[1] < to[3];
    const int64_t runs = last ? width : channels, run = last ? channels : width, across = last ? 3 : 1;
    for (int64_t i = 0; i < runs; i++)
        hc_read_floats(source + h * from[2] + i * from[across], x->dtype, from[4 - across], run,
                       (float *)(void *)(target + h * to[2] + i * to[across]));
}

void hc_widen(const hc_run *run, const hc_view *x, int64_t first, int64_t n, const hc_view *wide) {
    hc_widening job = {x, wide, first, is_whole(x, wide)};
    hc_parallel(run->n_threads, n * x->shape[2], widen_task, &job);
}
