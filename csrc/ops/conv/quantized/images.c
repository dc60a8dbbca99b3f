/* Images quantized to `activations`; images.h. */
#include "ops/conv/quantized/images.h"

#include "base/convert.h"
#include "base/threads.h"
#include "kernels/kernel.h"

enum { PART = 256 /* values that are read at a time */, LANES = 16, INFINITE = 0x7f800000 /* bits */ };

/* Whether the format has integers with scales: not codebooks or floats, and not formats whose padding would need
 * minima. */
static bool has_integers(const hc_format *format) {
    const hc_int_form grouped = hc_integers_of(format, HC_INT_GROUPED);
    return grouped.available && !grouped.has_minima;
}

hc_conv_order hc_conv_order_of(const hc_convolution *conv) {
    const hc_format *x = conv->activations, *w = conv->w->packed ? &conv->w->packed->format : NULL;
    if (!x)
        return HC_CONV_FLOATS;
    if (!w || !has_integers(x) || !has_integers(w))
        return HC_CONV_ROUNDED;
    const bool folded = hc_integers_of(x, HC_INT_FOLDED).available && hc_integers_of(w, HC_INT_FOLDED).available;
    return folded ? HC_CONV_FOLDED : HC_CONV_GROUPED;
}

bool hc_lines_make_codes(const hc_convolution *conv) {
    const hc_format *format = conv->activations;
    return conv->x->dtype == HC_F32 && format->m == 0 && hc_form_of(format).is_nearest &&
           hc_integers_of(format, HC_INT_FOLDED).max_abs == HC_LINE_LARGEST;
}

bool hc_one_window(const hc_convolution *conv) {
    enum { FEW = 4096 }; /* weights, for which packing an image takes longer than their panels */
    const hc_conv_shape *s = &conv->shape;
    const int64_t *before = conv->window->pad_before, *dilation = conv->window->dilation;
    return conv->window->groups == 1 && s->filters * s->r * s->s * s->channels >= FEW && s->out_height == 1 &&
           s->out_width == 1 && s->r == s->height && s->s == s->width && before[0] == 0 && before[1] == 0 &&
           (dilation[0] == 1 || s->r == 1) && (dilation[1] == 1 || s->s == 1);
}

hc_status hc_images_begin(hc_images *i, const hc_convolution *conv, hc_error *error) {
    static const int AXES[] = {1, 3, 4, 2};
    const hc_conv_shape *s = &conv->shape;
    const hc_view *x = conv->x;
    const bool is_one = conv->order == HC_CONV_FOLDED && conv->activations->group == 0 && conv->activations->m == 0;
    *i = (hc_images){.conv = conv, .planes = is_one ? 1 : conv->window->groups, .by_lines = hc_lines_make_codes(conv)};
    i->depth = s->channels / i->planes;
    i->view =
        (hc_view){.data = x->data,
                  .dtype = x->dtype,
                  .ndim = 5,
                  .shape = {s->n, i->planes, i->depth, s->height, s->width},
                  .strides = {x->strides[0], i->depth * x->strides[1], x->strides[1], x->strides[2], x->strides[3]}};
    hc_geometry geometry = {0};
    const hc_status status =
        hc_check_encoding("conv2d: activations: x", &i->view, conv->activations, 4, AXES, &geometry, error);
    if (status != HC_OK)
        return status;
    hc_encoder_init(&i->encoder, conv->run, "conv2d: activations", "x", &i->view, conv->activations, &geometry, 4,
                    AXES);
    const hc_status checked = hc_encoder_check_rows(&i->encoder, conv->run, error);
    return checked == HC_OK ? hc_encoder_observe(&i->encoder, conv->run, error) : checked;
}

void hc_images_free(hc_images *i) {
    hc_encoder_free(&i->encoder);
    hc_components_free(&i->codes);
}

hc_status hc_images_encode(hc_images *i, int64_t first, int64_t n, hc_error *error) {
    const hc_run *run = i->conv->run;
    hc_status status = HC_OK;
    if (n > i->room) {
        hc_components_free(&i->codes);
        i->room = 0;
        status = hc_components_alloc(&i->encoder.format, &i->encoder.geometry, n, &i->codes, error);
    }
    if (status != HC_OK)
        return status;
    i->room = hc_max(i->room, n);
    i->packed = (hc_packed_context){run, &i->encoder.format, &i->encoder.geometry, &i->codes, 0};
    hc_packed_source(&i->source, &i->packed, n);
    return hc_encoder_rows(&i->encoder, run, first, n, &i->codes, error);
}

typedef struct {
    const hc_convolution *conv;
    int64_t first;
    uint32_t *lines;
} hc_magnitudes;

/* Bits of the largest magnitude of line `task` of these images; if planes have no gaps, of as many contiguous
 * values. */
static void largest_task(void *context, int64_t task, int thread) {
    (void)thread;
    const hc_magnitudes *job = context;
    const hc_conv_shape *s = &job->conv->shape;
    const hc_view *x = job->conv->x;
    const int64_t *strides = x->strides, values = s->width * s->channels;
    const char *image = (const char *)x->data + (job->first + task / s->height) * strides[0];
    const char *line = image + task % s->height * strides[2];
    hc_largest_f32_fn *largest_of = HC_PICK(largest_f32, job->conv->run);
    const bool whole = ((uintptr_t)x->data | (uintptr_t)(strides[0] | strides[1] | strides[2] | strides[3])) % 4 == 0;
    uint32_t largest = 0;
    if (whole && strides[1] == 4 && strides[3] == 4 * s->channels) {
        largest = largest_of((const float *)(const void *)line, values, 0);
    } else if (whole && strides[3] == 4 && strides[2] == 4 * s->width && strides[1] == strides[2] * s->height) {
        largest = largest_of((const float *)(const void *)image + task % s->height * values, values, 0);
    } else if (whole && strides[1] == 4 && s->channels >= LANES) {
        for (int64_t w = 0; w < s->width; w++)
            largest = largest_of((const float *)(const void *)(line + w * strides[3]), s->channels, largest);
    } else if (whole && strides[3] == 4) {
        for (int64_t c = 0; c < s->channels; c++)
            largest = largest_of((const float *)(const void *)(line + c * strides[1]), s->width, largest);
    } else {
        float part[PART];
        for (int64_t w = 0; w < s->width; w++)
            for (int64_t c = 0; c < s->channels; c += PART) {
                const int64_t n = hc_min(PART, s->channels - c);
                hc_read_floats(line + w * strides[3] + c * strides[1], HC_F32, strides[1], n, part);
                largest = largest_of(part, n, largest);
            }
    }
    job->lines[task] = largest;
}

hc_status hc_images_scales(hc_images *i, int64_t first, int64_t n, uint32_t *lines, float *scales, hc_error *error) {
    const int64_t height = i->conv->shape.height;
    hc_magnitudes job = {i->conv, first, lines};
    bool legal = true;
    hc_parallel(i->conv->run->n_threads, n * height, largest_task, &job);
    for (int64_t image = 0; image < n; image++) {
        uint32_t largest = 0;
        for (int64_t h = 0; h < height; h++)
            largest = lines[image * height + h] > largest ? lines[image * height + h] : largest;
        legal = legal && largest < INFINITE;
        scales[image] = hc_f32_from_bits(largest) / HC_LINE_LARGEST;
    }
    /* packing finds and names the value that is not finite */
    return legal ? HC_OK : hc_images_encode(i, first, n, error);
}
