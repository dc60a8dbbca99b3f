/* Images rounded to a format, as floats; rounded.h. */
#include "ops/conv/quantized/rounded.h"

#include "base/threads.h"
#include "kernels/kernel.h"
#include "ops/conv/windows.h"

#include <float.h>
#include <string.h>

enum {
    AT_ONCE = 8 << 10, /* values that a task decodes, a multiple of 8 */
};

static int64_t values_of(const hc_conv_shape *s) { return s->channels * s->height * s->width; }

static bool has_codes(const hc_rounded *r) { return r->conv->order == HC_CONV_GROUPED; }

int64_t hc_rounded_images_at_once(const hc_convolution *conv) {
    return hc_max(1, hc_min(conv->shape.n, HC_IMAGE_BYTES / hc_max(4 * values_of(&conv->shape), 1)));
}

int64_t hc_rounded_bytes(const hc_convolution *conv) {
    const int64_t value = hc_lines_make_codes(conv) ? 4 : 4 + 1 + hc_ceil_div(conv->activations->bits, 8);
    return hc_rounded_images_at_once(conv) * (values_of(&conv->shape) * value + 4 * conv->shape.height);
}

hc_status hc_rounded_begin(hc_rounded *r, const hc_convolution *conv, hc_error *error) {
    const hc_conv_shape *s = &conv->shape;
    const bool by_lines = conv->images->by_lines;
    const int64_t size = sizeof(float), groups = conv->window->groups;
    *r = (hc_rounded){.conv = conv, .images = hc_rounded_images_at_once(conv)};
    const int64_t values = r->images * values_of(s);
    r->values = hc_alloc_aligned(values * size);
    r->scale = hc_alloc_aligned(r->images * size);
    r->largest = hc_alloc_aligned(by_lines ? r->images * s->height * size : 0);
    r->limbs = hc_alloc_aligned(has_codes(r) && !by_lines ? values : 0);
    if (!r->values || !r->scale || !r->largest || !r->limbs)
        return hc_fail(error, HC_MEMORY, "conv2d: not enough memory for the rounded values of an image");
    /* (image, h, w, channel) if made line by line; packed codes are (image, group, h, w, channel). */
    const bool last = by_lines || groups == 1;
    const int64_t run = last ? s->channels : s->group_channels, pixel = run * size,
                  plane = s->height * s->width * pixel;
    r->group_step = last ? s->group_channels * size : plane;
    r->view = (hc_view){.data = r->values,
                        .dtype = HC_F32,
                        .ndim = 4,
                        .shape = {r->images, s->channels, s->height, s->width},
                        .strides = {values_of(s) * size, last || run > 1 ? size : plane, s->width * pixel, pixel}};
    return HC_OK;
}

void hc_rounded_free(hc_rounded *r) {
    hc_free_aligned(r->values);
    hc_free_aligned(r->scale);
    hc_free_aligned(r->largest);
    hc_free_aligned(r->limbs);
}

static bool has_whole_floats(const hc_view *x) {
    return ((uintptr_t)x->data | (uintptr_t)(x->strides[0] | x->strides[1] | x->strides[2] | x->strides[3])) % 4 == 0;
}

/* Rounds n values with the scale of their image; `to` may be `from`. */
static void round_values(const hc_rounded *r, const float *from, int64_t n, float scale, float *to) {
    HC_PICK(codes_s8, r->conv->run)(from, n, scale, has_codes(r) ? HC_PANEL_F32 : HC_CODES_ROUNDED, to);
    if (!has_codes(r) &&
        scale > FLT_MAX / (2 * HC_LINE_LARGEST)) /* the largest code may decode to infinity, which saturates */
        for (int64_t i = 0; i < n; i++)
            to[i] = to[i] > FLT_MAX ? FLT_MAX : to[i] < -FLT_MAX ? -FLT_MAX : to[i];
}

/* Line `task` of the current images, with contiguous channels. */
static void line_task(void *context, int64_t task, int thread) {
    (void)thread;
    const hc_rounded *r = context;
    const hc_conv_shape *s = &r->conv->shape;
    const hc_view *x = r->conv->x;
    const int64_t image = task / s->height, n = s->width * s->channels;
    const char *from = (const char *)x->data + (r->first + image) * x->strides[0] + task % s->height * x->strides[2];
    float *to = r->values + task * n;
    const float *line = to;
    if (has_whole_floats(x) && x->strides[1] == 4 && x->strides[3] == 4 * s->channels) {
        line = (const float *)(const void *)from;
    } else if (x->strides[3] == 4 && x->strides[1] % 4 == 0 && s->channels <= INT32_MAX / 4) {
        hc_pack_x32_fn *transpose = HC_PICK(pack_x32, r->conv->run);
        for (int64_t c = 0; c < s->channels; c += 16)
            transpose(from + c * x->strides[1], x->strides[1], (int)hc_min(16, s->channels - c), s->width, to + c,
                      (int)s->channels, 0);
    } else {
        for (int64_t w = 0; w < s->width; w++)
            hc_read_floats(from + w * x->strides[3], HC_F32, x->strides[1], s->channels, to + w * s->channels);
    }
    round_values(r, line, n, r->scale[image], to);
}

typedef struct {
    hc_rounded *rounded;
    const hc_source *source;
    int64_t columns, parts;
} hc_decoding;

/* Part `task` of the current images. */
static void decode_task(void *context, int64_t task, int thread) {
    (void)thread;
    const hc_decoding *d = context;
    hc_rounded *r = d->rounded;
    const int64_t image = task / d->parts, first = task % d->parts * AT_ONCE;
    const int64_t n = d->parts == 1 ? d->columns : hc_min(AT_ONCE, d->columns - first);
    float *to = r->values + image * d->columns + first;
    if (!has_codes(r)) {
        d->source->floats(d->source, image, 1, first, n, to, n);
        return;
    }
    float scale;
    int8_t *codes = r->limbs + image * d->columns + first;
    const hc_int_tile tile = {.limb = {codes}, .ld = n, .group_scale = &scale, .groups_ld = 1};
    d->source->integers(d->source, HC_INT_GROUPED, image, 1, first, n, &tile);
    for (int64_t i = 0; i < n; i++)
        to[i] = (float)codes[i];
    if (first == 0)
        r->scale[image] = scale;
}

hc_status hc_rounded_images(hc_rounded *r, int64_t first, int64_t n, hc_error *error) {
    const hc_run *run = r->conv->run;
    hc_images *images = r->conv->images;
    r->first = first;
    r->view.shape[0] = n;
    if (images->by_lines) {
        const hc_status status = hc_images_scales(images, first, n, r->largest, r->scale, error);
        if (status == HC_OK)
            hc_parallel(run->n_threads, n * r->conv->shape.height, line_task, r);
        return status;
    }
    const hc_status status = hc_images_encode(images, first, n, error);
    if (status != HC_OK)
        return status;
    hc_decoding decoding = {.rounded = r, .source = &images->source, .columns = values_of(&r->conv->shape)};
    const bool whole = images->source.group || images->source.sparse || decoding.columns == 0;
    decoding.parts = whole ? 1 : hc_ceil_div(decoding.columns, AT_ONCE);
    hc_parallel(run->n_threads, n * decoding.parts, decode_task, &decoding);
    return HC_OK;
}

hc_convolution hc_rounded_part(const hc_rounded *r, int64_t first, int64_t n, hc_view *x, hc_view *out) {
    hc_convolution part = *r->conv;
    *x = r->view, *out = *part.out;
    x->data = (char *)x->data + first * x->strides[0];
    out->data = (char *)out->data + (r->first + first) * out->strides[0];
    x->shape[0] = out->shape[0] = part.shape.n = n;
    part.x = x, part.out = out;
    part.activations = NULL;
    part.order = HC_CONV_FLOATS;
    part.images = NULL;
    return part;
}

bool hc_filter_codes(const hc_convolution *conv, float *codes, float *scales) {
    enum { FILTERS = 16 }; /* at a time, in L1 */
    const int64_t filters = conv->shape.filters, taps = conv->shape.r * conv->shape.s, count = FILTERS * taps;
    float *own = hc_alloc_aligned(count * (int64_t)(2 * sizeof *own + 1)); /* scales, codes as floats, codes */
    if (!own)
        return false;
    hc_pack_x32_fn *transpose = HC_PICK(pack_x32, conv->run);
    float *values = own + count;
    int8_t *limbs = (int8_t *)(values + count);
    hc_filters context;
    const hc_source w = hc_filter_source(conv, 0, filters, &context);
    const hc_int_tile tile = {.limb = {limbs}, .ld = taps, .group_scale = own, .groups_ld = taps};
    for (int64_t f = 0; f < filters; f += FILTERS) {
        const int n = (int)hc_min(FILTERS, filters - f);
        w.integers(&w, HC_INT_GROUPED, f, n, 0, taps, &tile);
        for (int64_t i = 0; i < n * taps; i++)
            values[i] = (float)limbs[i];
        transpose(values, taps * (int64_t)sizeof *values, n, taps, codes + f, (int)filters, 0);
        transpose(own, taps * (int64_t)sizeof *own, n, taps, scales + f, (int)filters, 0);
    }
    hc_free_aligned(own);
    return true;
}
