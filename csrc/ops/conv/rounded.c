/* Images rounded to a format, as floats; rounded.h. */
#include "ops/conv/rounded.h"

#include "base/convert.h"
#include "base/threads.h"
#include "kernels/kernel.h"

#include <float.h>
#include <string.h>

enum {
    IMAGE_BYTES = 8 << 20,
    PART = 256,            /* codes that become floats at a time */
    LARGEST = 127,         /* code of int8 */
    AT_ONCE = 8 << 10,     /* values that a task decodes, a multiple of 8 */
    INFINITE = 0x7f800000, /* bits */
};

static const int AXES[] = {1, 3, 4, 2};

bool hc_has_integers(const hc_format *format) {
    const hc_format_ops *ops = hc_format_find(format->family);
    hc_int_form grouped = {0};
    if (ops->decode_int)
        ops->int_form(format, HC_INT_GROUPED, &grouped);
    return grouped.available && !grouped.has_minima;
}

static hc_int_form form_of(const hc_format *format, hc_int_mode mode) {
    const hc_format_ops *ops = hc_format_find(format->family);
    hc_int_form form = {0};
    if (ops->decode_int)
        ops->int_form(format, mode, &form);
    return form;
}

/* Codes are what codes_s8 makes of an image's largest magnitude. */
static bool is_by_lines(const hc_convolution *conv) {
    const hc_format *format = conv->activations;
    return conv->x->dtype == HC_F32 && format->m == 0 && hc_form_of(format).is_nearest &&
           form_of(format, HC_INT_FOLDED).max_abs == LARGEST;
}

const char *hc_rounded_refuses(const hc_convolution *conv, const char *folded, bool *codes) {
    const hc_conv_shape *s = &conv->shape;
    const hc_format *x = conv->activations, *w = conv->w->packed ? &conv->w->packed->format : NULL;
    *codes = false;
    if (x->m > 0 || (w && w->m > 0))
        return "zeros of a pattern are skipped in panels";
    if (!w || !hc_has_integers(x) || !hc_has_integers(w))
        return is_by_lines(conv) || s->group_channels == 1 || conv->window->groups == 1
                   ? NULL
                   : "channels of a group would not lie as the format rounds them";
    if (form_of(x, HC_INT_FOLDED).available && form_of(w, HC_INT_FOLDED).available)
        return folded;
    *codes = true;
    if (s->group_channels != 1 || s->filters != conv->window->groups)
        return "scales of taps are for groups of one channel and one filter";
    if (x->group > 0)
        return "x has a scale for every value";
    if (w->group == 0 || form_of(x, HC_INT_GROUPED).n_limbs != 1 || form_of(w, HC_INT_GROUPED).n_limbs != 1)
        return "codes are of more than 8 bits, or a filter has one scale";
    return NULL;
}

static int64_t values_of(const hc_conv_shape *s) { return s->channels * s->height * s->width; }

static int64_t images_at_once(const hc_convolution *conv) {
    return hc_max(1, hc_min(conv->shape.n, IMAGE_BYTES / hc_max(4 * values_of(&conv->shape), 1)));
}

int64_t hc_rounded_bytes(const hc_convolution *conv) {
    const int64_t value = is_by_lines(conv) ? 4 : 4 + 1 + hc_ceil_div(conv->activations->bits, 8);
    return images_at_once(conv) * (values_of(&conv->shape) * value + 4 * conv->shape.height);
}

hc_status hc_rounded_begin(hc_rounded *r, const hc_convolution *conv, hc_error *error) {
    const hc_conv_shape *s = &conv->shape;
    const hc_view *x = conv->x;
    const int64_t size = sizeof(float), run = s->group_channels, groups = conv->window->groups;
    *r = (hc_rounded){.conv = conv, .by_lines = is_by_lines(conv), .images = images_at_once(conv)};
    hc_rounded_refuses(conv, NULL, &r->codes);
    r->grouped =
        (hc_view){.data = x->data,
                  .dtype = x->dtype,
                  .ndim = 5,
                  .shape = {s->n, groups, run, s->height, s->width},
                  .strides = {x->strides[0], run * x->strides[1], x->strides[1], x->strides[2], x->strides[3]}};
    hc_geometry geometry = {0};
    hc_status status =
        hc_check_encoding("conv2d: activations: x", &r->grouped, conv->activations, 4, AXES, &geometry, error);
    if (status != HC_OK)
        return status;
    hc_encoder_init(&r->encoder, conv->run, "conv2d: activations", "x", &r->grouped, conv->activations, &geometry, 4,
                    AXES);
    status = hc_encoder_observe(&r->encoder, conv->run, error);
    if (status == HC_OK && !r->by_lines)
        status = hc_components_alloc(&r->encoder.format, &geometry, r->images, &r->packed, error);
    if (status != HC_OK)
        return status;
    const int64_t values = r->images * values_of(s);
    r->values = hc_alloc_aligned(values * size);
    r->scale = hc_alloc_aligned(r->images * size);
    r->largest = hc_alloc_aligned(r->by_lines ? r->images * s->height * size : 0);
    r->limbs = hc_alloc_aligned(r->codes && !r->by_lines ? values : 0);
    if (!r->values || !r->scale || !r->largest || !r->limbs)
        return hc_fail(error, HC_MEMORY, "conv2d: no memory for the rounded values of an image");
    /* (image, h, w, channel) line by line; of packed codes (image, group, h, w, channel), groups or channels of which are 1. */
    const bool last = r->by_lines || groups == 1;
    const int64_t pixel = last ? s->channels * size : size;
    r->view =
        (hc_view){.data = r->values,
                  .dtype = HC_F32,
                  .ndim = 4,
                  .shape = {r->images, s->channels, s->height, s->width},
                  .strides = {values_of(s) * size, last ? size : s->height * s->width * size, s->width * pixel, pixel}};
    return HC_OK;
}

void hc_rounded_free(hc_rounded *r) {
    hc_encoder_free(&r->encoder);
    hc_components_free(&r->packed);
    hc_free_aligned(r->values);
    hc_free_aligned(r->scale);
    hc_free_aligned(r->largest);
    hc_free_aligned(r->limbs);
}

static bool has_whole_floats(const hc_view *x) {
    return ((uintptr_t)x->data | (uintptr_t)(x->strides[0] | x->strides[1] | x->strides[2] | x->strides[3])) % 4 == 0;
}

/* The largest magnitude of line `task` of the images at hand. */
static void largest_task(void *context, int64_t task, int thread) {
    (void)thread;
    const hc_rounded *r = context;
    const hc_conv_shape *s = &r->conv->shape;
    const hc_view *x = r->conv->x;
    const char *line =
        (const char *)x->data + (r->first + task / s->height) * x->strides[0] + task % s->height * x->strides[2];
    hc_largest_f32_fn *largest_of = HC_PICK(largest_f32, r->conv->run);
    uint32_t largest = 0;
    if (has_whole_floats(x) && x->strides[1] == 4 && x->strides[3] == 4 * s->channels) {
        largest = largest_of((const float *)(const void *)line, s->width * s->channels, 0);
    } else if (has_whole_floats(x) && x->strides[3] == 4) {
        for (int64_t c = 0; c < s->channels; c++)
            largest = largest_of((const float *)(const void *)(line + c * x->strides[1]), s->width, largest);
    } else {
        float values[PART];
        for (int64_t w = 0; w < s->width; w++)
            for (int64_t c = 0; c < s->channels; c += PART) {
                const int64_t n = hc_min(PART, s->channels - c);
                hc_read_floats(line + w * x->strides[3] + c * x->strides[1], HC_F32, x->strides[1], n, values);
                largest = largest_of(values, n, largest);
            }
    }
    r->largest[task] = largest;
}

/* n values under the scale of their image; `to` may be `from`. */
static void round_values(const hc_rounded *r, const float *from, int64_t n, float scale, float *to) {
    hc_codes_s8_fn *codes_of = HC_PICK(codes_s8, r->conv->run);
    int16_t code[PART];
    for (int64_t i = 0; i < n; i += PART) {
        const int64_t some = hc_min(PART, n - i);
        codes_of(from + i, some, scale, HC_PANEL_S16, code);
        const float by = r->codes ? 1 : scale;
        for (int64_t j = 0; j < some; j++)
            to[i + j] = by * (float)code[j];
        if (by > FLT_MAX / (2 * LARGEST)) /* the largest code may round to infinity, which saturates */
            for (int64_t j = 0; j < some; j++)
                to[i + j] = to[i + j] > FLT_MAX ? FLT_MAX : to[i + j] < -FLT_MAX ? -FLT_MAX : to[i + j];
    }
}

/* Line `task` of the images at hand, channels side by side. */
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

static hc_status round_lines(hc_rounded *r, int64_t n, hc_error *error) {
    const hc_run *run = r->conv->run;
    const int64_t height = r->conv->shape.height;
    bool legal = true;
    hc_parallel(run->n_threads, n * height, largest_task, r);
    for (int64_t i = 0; i < n; i++) {
        uint32_t largest = 0;
        for (int64_t h = 0; h < height; h++)
            largest = r->largest[i * height + h] > largest ? r->largest[i * height + h] : largest;
        legal = legal && largest < INFINITE;
        r->scale[i] = hc_f32_from_bits(largest) / LARGEST;
    }
    if (legal) {
        hc_parallel(run->n_threads, n * height, line_task, r);
        return HC_OK;
    }
    hc_components packed = {0}; /* encoding names the value that is not */
    hc_status status = hc_components_alloc(&r->encoder.format, &r->encoder.geometry, n, &packed, error);
    if (status == HC_OK)
        status = hc_encoder_rows(&r->encoder, run, r->first, n, &packed, error);
    hc_components_free(&packed);
    return status;
}

typedef struct {
    hc_rounded *rounded;
    hc_source source;
    int64_t columns, parts;
} hc_decoding;

/* Part `task` of the images at hand. */
static void decode_task(void *context, int64_t task, int thread) {
    (void)thread;
    const hc_decoding *d = context;
    hc_rounded *r = d->rounded;
    const int64_t image = task / d->parts, first = task % d->parts * AT_ONCE;
    const int64_t n = d->parts == 1 ? d->columns : hc_min(AT_ONCE, d->columns - first);
    float *to = r->values + image * d->columns + first;
    if (!r->codes) {
        d->source.floats(&d->source, image, 1, first, n, to, n);
        return;
    }
    float scale;
    int8_t *codes = r->limbs + image * d->columns + first;
    const hc_int_tile tile = {.limb = {codes}, .ld = n, .group_scale = &scale, .groups_ld = 1};
    d->source.integers(&d->source, HC_INT_GROUPED, image, 1, first, n, &tile);
    for (int64_t i = 0; i < n; i++)
        to[i] = (float)codes[i];
    if (first == 0)
        r->scale[image] = scale;
}

hc_status hc_rounded_images(hc_rounded *r, int64_t first, int64_t n, hc_error *error) {
    const hc_run *run = r->conv->run;
    r->first = first;
    r->view.shape[0] = n;
    if (r->by_lines)
        return round_lines(r, n, error);
    const hc_status status = hc_encoder_rows(&r->encoder, run, first, n, &r->packed, error);
    if (status != HC_OK)
        return status;
    const hc_packed_context packed = {run, &r->encoder.format, &r->encoder.geometry, &r->packed, 0};
    hc_decoding decoding = {.rounded = r, .columns = values_of(&r->conv->shape)};
    hc_packed_source(&decoding.source, &packed, n);
    decoding.parts = decoding.source.group ? 1 : hc_ceil_div(decoding.columns, AT_ONCE);
    hc_parallel(run->n_threads, n * decoding.parts, decode_task, &decoding);
    return HC_OK;
}

bool hc_filter_codes(const hc_convolution *conv, float *codes, float *scales) {
    const int64_t filters = conv->shape.filters, taps = conv->shape.r * conv->shape.s, count = filters * taps;
    float *own = hc_alloc_aligned(count * (int64_t)(sizeof *own + 1)); /* scales, then codes */
    if (!own)
        return false;
    int8_t *limbs = (int8_t *)(own + count);
    hc_filters context;
    const hc_source w = hc_filter_source(conv, 0, filters, &context);
    const hc_int_tile tile = {.limb = {limbs}, .ld = taps, .group_scale = own, .groups_ld = taps};
    w.integers(&w, HC_INT_GROUPED, 0, filters, 0, taps, &tile);
    for (int64_t f = 0; f < filters; f++)
        for (int64_t t = 0; t < taps; t++) {
            codes[t * filters + f] = (float)limbs[f * taps + t];
            scales[t * filters + f] = own[f * taps + t];
        }
    hc_free_aligned(own);
    return true;
}
