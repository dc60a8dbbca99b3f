/* A convolution as a matmul: a row of the left side is the window of one output pixel, ((image * P) + p) * Q + q, with
 * columns (r, s, c) of one group ascending; a row of the right side is a filter. Windows are gathered while panels are
 * packed, never stored whole.
 */
#ifndef HC_WINDOWS_H
#define HC_WINDOWS_H

#include "ops/conv/convolution.h"

/* The filters of one group as a source. The contexts must outlive it. */
typedef struct {
    hc_dense_context dense;
    hc_packed_context packed;
} hc_filters;
hc_source hc_filter_source(const hc_convolution *conv, int64_t first, int64_t filters, hc_filters *context);

/* out (images, filters of one group, P, Q) as rows; columns are filters. */
hc_rows hc_answer_rows(const hc_view *out, const hc_conv_shape *shape, int64_t first_image, int64_t images,
                       int64_t first_filter);

/* Windows [first, first + rows) of one group, one after the other. */
void hc_window_rows(const hc_convolution *conv, int64_t group, int64_t first, int64_t rows, float *values);
/* The common part of all windows of some images, without values. */
hc_source hc_window_source(const hc_convolution *conv, int64_t images);
/* The matmuls of all groups, for floats of conv->x; group_step: bytes of x from a group of channels to the next. */
hc_status hc_multiply_windows(const hc_convolution *conv, int64_t group_step, hc_error *error);

/* Windows are gathered once for all filters of a group. */
hc_conv_work hc_window_work(const hc_convolution *conv);

typedef struct {
    int64_t image, h, w; /* of the window's first tap; may be outside */
} hc_corner;

static inline hc_corner hc_corner_of(const hc_convolution *conv, int64_t row) {
    const hc_conv_shape *s = &conv->shape;
    hc_corner corner;
    corner.w = row % s->out_width * conv->window->stride[1] - conv->window->pad_before[1];
    row /= s->out_width;
    corner.h = row % s->out_height * conv->window->stride[0] - conv->window->pad_before[0];
    corner.image = row / s->out_height;
    return corner;
}

/* The pixel under tap `tap` (r * S + s); false outside the image, where everything is 0. */
static inline bool hc_tap_pixel(const hc_convolution *conv, const hc_corner *corner, int64_t tap, int64_t *h,
                                int64_t *w) {
    const hc_conv_shape *s = &conv->shape;
    *h = corner->h + tap / s->s * conv->window->dilation[0];
    *w = corner->w + tap % s->s * conv->window->dilation[1];
    return *h >= 0 && *h < s->height && *w >= 0 && *w < s->width;
}

#endif
