/* `implicit` of quantized images. With codes: windows of integers, where a row is an image (images.h), exact or with
 * one fmaf per segment. With other formats: windows of the rounded values of x (rounded.h).
 *
 * Memory: the drivers' bound, and the codes and integers, or values, of HC_IMAGE_BYTES of images, at least one image.
 */
#include "ops/conv/quantized/rounded.h"
#include "ops/conv/windows.h"
#include "ops/product/plan.h"

#include <string.h>

/* The current images as integers, (image, plane, h, w, channel), and their scales. */
typedef struct {
    const hc_convolution *conv;
    hc_int_mode mode;
    int64_t group; /* of the convolution */
    int8_t *memory, *limb[3];
    float *scales;                    /* of images, or of their groups of values */
    int64_t columns, groups;          /* of an image */
    int64_t pixel_groups, group_size; /* groups of a pixel of a plane, 0: one scale per image */
} hc_code_images;

static void window_integers(const hc_source *source, hc_int_mode mode, int64_t first_row, int64_t rows,
                            int64_t first_column, int64_t columns, const hc_int_tile *out) {
    const hc_code_images *c = source->context;
    const hc_conv_shape *s = &c->conv->shape;
    const hc_images *images = c->conv->images;
    const int64_t length = s->group_channels, depth = images->depth;
    const int64_t plane = images->planes > 1 ? c->group : 0, channel = images->planes > 1 ? 0 : c->group * length;
    const int n_limbs = source->form[mode].n_limbs;
    for (int64_t r = 0; r < rows; r++) {
        const hc_corner corner = hc_corner_of(c->conv, first_row + r);
        if (mode == HC_INT_FOLDED)
            out->row_scale[r] = c->scales[corner.image];
        else if (c->group_size == 0)
            out->group_scale[r * out->groups_ld] = c->scales[corner.image];
        int64_t group = 0;
        for (int64_t done = 0; done < columns;) {
            const int64_t run = (first_column + done) / length, inside = (first_column + done) % length;
            const int64_t count = hc_min(length - inside, columns - done);
            int64_t h, w;
            const bool in = hc_tap_pixel(c->conv, &corner, run, &h, &w);
            const int64_t pixel = in ? (plane * s->height + h) * s->width + w : 0;
            for (int i = 0; i < n_limbs; i++) {
                int8_t *to = out->limb[i] + r * out->ld + done;
                if (in)
                    memcpy(to, c->limb[i] + corner.image * c->columns + pixel * depth + channel + inside,
                           (size_t)count);
                else
                    memset(to, 0, (size_t)count);
            }
            if (mode == HC_INT_GROUPED && c->group_size > 0) {
                const int64_t first = inside / c->group_size, last = (inside + count - 1) / c->group_size;
                float *to = out->group_scale + r * out->groups_ld + group;
                const float *from = c->scales + corner.image * c->groups + pixel * c->pixel_groups + first;
                for (int64_t g = first; g <= last; g++)
                    to[g - first] = in ? from[g - first] : 0.0f;
                group += last - first + 1;
            }
            done += count;
        }
    }
}

static hc_status begin(hc_code_images *c, const hc_convolution *conv, int64_t images, hc_error *error) {
    const hc_geometry *geometry = &conv->images->encoder.geometry;
    const hc_int_mode mode = conv->order == HC_CONV_FOLDED ? HC_INT_FOLDED : HC_INT_GROUPED;
    *c = (hc_code_images){.conv = conv, .mode = mode, .columns = geometry->whole_columns, .groups = geometry->groups};
    const int n_limbs = hc_integers_of(conv->activations, mode).n_limbs;
    const int64_t scales_at = hc_round_up(n_limbs * images * c->columns, HC_CACHE_LINE);
    c->memory = hc_alloc_aligned(scales_at + images * (geometry->groups + 1) * (int64_t)sizeof(float));
    if (!c->memory)
        return hc_fail(error, HC_MEMORY, "conv2d: not enough memory for the codes of an image");
    for (int i = 0; i < n_limbs; i++)
        c->limb[i] = c->memory + i * images * c->columns;
    c->scales = (float *)(void *)(c->memory + scales_at);
    return HC_OK;
}

/* Makes images [first, first + n) the current ones. */
static hc_status load(hc_code_images *c, int64_t first, int64_t n, hc_error *error) {
    hc_images *images = c->conv->images;
    const hc_status status = hc_images_encode(images, first, n, error);
    if (status != HC_OK)
        return status;
    const hc_source *all = &images->source;
    const bool folded = c->mode == HC_INT_FOLDED;
    c->group_size = all->group;
    c->pixel_groups = all->group ? hc_ceil_div(images->depth, all->group) : 1; /* without those of padding */
    const hc_int_tile tile = {.limb = {c->limb[0], c->limb[1], c->limb[2]},
                              .ld = c->columns,
                              .group_scale = folded ? NULL : c->scales,
                              .groups_ld = c->groups,
                              .row_scale = folded ? c->scales : NULL};
    all->integers(all, c->mode, 0, n, 0, c->columns, &tile);
    return HC_OK;
}

/* The product of one group of channels of the current images. */
static hc_status multiply(const hc_code_images *c, int64_t first, int64_t n, hc_error *error) {
    const hc_convolution *conv = c->conv;
    const int64_t filters = conv->shape.filters / conv->window->groups;
    hc_filters context;
    const hc_source w = hc_filter_source(conv, c->group * filters, filters, &context);
    hc_source x = hc_window_source(conv, n);
    x.integers = window_integers;
    x.form[c->mode] = conv->images->source.form[c->mode];
    x.group = conv->images->source.group;
    x.context = c;
    const hc_product product = {.run = conv->run,
                                .order = conv->order == HC_CONV_FOLDED ? HC_ORDER_FOLDED : HC_ORDER_GROUPED,
                                .x = &x,
                                .w = &w,
                                .out = hc_answer_rows(conv->out, &conv->shape, first, n, c->group * filters)};
    return hc_multiply(&product, error);
}

const char *hc_conv_implicit_codes_refuses(const hc_convolution *conv) {
    (void)conv;
    return NULL;
}

hc_conv_work hc_conv_implicit_codes_work(const hc_convolution *conv) {
    hc_conv_work work = hc_window_work(conv);
    work.moved = hc_conv_moved(conv);
    return work;
}

hc_status hc_conv_implicit_codes_run(const hc_convolution *conv, hc_error *error) {
    const int64_t at_once = hc_rounded_images_at_once(conv), all = conv->shape.n;
    hc_code_images c;
    hc_status status = begin(&c, conv, at_once, error);
    for (int64_t first = 0; status == HC_OK && first < all; first += at_once) {
        const int64_t n = hc_min(at_once, all - first);
        status = load(&c, first, n, error);
        for (c.group = 0; status == HC_OK && c.group < conv->window->groups; c.group++)
            status = multiply(&c, first, n, error);
    }
    hc_free_aligned(c.memory);
    return status;
}

const char *hc_conv_implicit_rounded_refuses(const hc_convolution *conv) {
    (void)conv;
    return NULL;
}

hc_conv_work hc_conv_implicit_rounded_work(const hc_convolution *conv) {
    hc_conv_work work = hc_window_work(conv);
    work.bytes += hc_rounded_bytes(conv);
    return work;
}

hc_status hc_conv_implicit_rounded_run(const hc_convolution *conv, hc_error *error) {
    hc_rounded rounded;
    hc_status status = hc_rounded_begin(&rounded, conv, error);
    for (int64_t first = 0; status == HC_OK && first < conv->shape.n; first += rounded.images) {
        const int64_t n = hc_min(rounded.images, conv->shape.n - first);
        hc_view x, out;
        status = hc_rounded_images(&rounded, first, n, error);
        const hc_convolution part = hc_rounded_part(&rounded, 0, n, &x, &out);
        if (status == HC_OK)
            status = hc_multiply_windows(&part, rounded.group_step, error);
    }
    hc_rounded_free(&rounded);
    return status;
}
