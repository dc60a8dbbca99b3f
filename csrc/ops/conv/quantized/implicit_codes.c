/* `implicit` of quantized images. With codes: windows of integers, where a row is an image (images.h), exact or with
 * one fmaf per segment. Codes of int8 are made line by line, others are packed and unpacked. Images of one window are
 * packed and multiplied as they are. With other formats: windows of the rounded values of x (rounded.h).
 *
 * Memory: the drivers' bound, and the codes and integers, or values, of HC_IMAGE_BYTES of images, at least one image.
 */
#include "base/threads.h"
#include "kernels/kernel.h"
#include "ops/conv/quantized/rounded.h"
#include "ops/conv/windows.h"
#include "ops/product/plan.h"

#include <string.h>

enum { CHANNELS = 16, PIXELS = 64, TOGETHER = 1024 }; /* of a tile that is transposed; pixels of a task, at least */

/* The current images as integers, (image, plane, h, w, channel), and their scales. */
typedef struct {
    const hc_convolution *conv;
    hc_int_mode mode;
    int64_t group; /* of the convolution */
    int8_t *memory, *limb[3];
    float *scales;                    /* of images, or of their groups of values */
    int64_t columns, groups;          /* of an image */
    int64_t pixel_groups, group_size; /* groups of a pixel of a plane, 0: one scale per image */
    int64_t planes, depth;            /* a pixel of a plane has `depth` channels */
    bool by_lines;                    /* codes are made from lines of x, as those of `direct` */
    bool whole;                       /* windows are the pixels of the images, one after the other */
    int64_t first;
    uint32_t *largest; /* magnitudes of lines, as bits */
} hc_code_images;

/* The scale of an image whose row is row r of the tile. */
static void store_scale(const hc_code_images *c, hc_int_mode mode, int64_t image, int64_t r, const hc_int_tile *out) {
    if (mode == HC_INT_FOLDED)
        out->row_scale[r] = c->scales[image];
    else
        out->group_scale[r * out->groups_ld] = c->scales[image];
}

/* Columns of pixels [first_row, first_row + rows) of all images. */
static void pixel_integers(const hc_code_images *c, hc_int_mode mode, int64_t first_row, int64_t rows,
                           int64_t first_column, int64_t columns, const hc_int_tile *out) {
    enum { BYTES = 16 };
    const int64_t depth = c->depth, pixels = c->columns / depth;
    for (int64_t r = 0; r < rows; r++) {
        const int64_t image = (first_row + r) / pixels;
        const int8_t *from = c->limb[0] + (first_row + r) * depth + first_column;
        int8_t *to = out->limb[0] + r * out->ld;
        store_scale(c, mode, image, r, out);
        for (int64_t j = 0; columns >= BYTES && j < columns; j += BYTES) { /* the last ones may repeat some */
            const int64_t at = hc_min(j, columns - BYTES);
            memcpy(to + at, from + at, BYTES);
        }
        if (columns < BYTES)
            memcpy(to, from, (size_t)columns);
    }
}

/* Windows whose taps of a row are adjacent: all channels of a pixel, no dilation, one scale per image. */
static void line_integers(const hc_code_images *c, hc_int_mode mode, int n_limbs, int64_t first_row, int64_t rows,
                          int64_t first_column, int64_t columns, const hc_int_tile *out) {
    const hc_conv_shape *s = &c->conv->shape;
    const int64_t line = s->s * c->depth, width = s->width * c->depth;
    const int64_t plane = c->planes > 1 ? c->group * s->height : 0;
    for (int64_t r = 0; r < rows; r++) {
        const hc_corner corner = hc_corner_of(c->conv, first_row + r);
        store_scale(c, mode, corner.image, r, out);
        int64_t number = first_column / line, inside = first_column % line;
        for (int64_t done = 0, count; done < columns; done += count, number++, inside = 0) {
            count = hc_min(line - inside, columns - done);
            const int64_t h = corner.h + number * c->conv->window->dilation[0];
            const int64_t at = corner.w * c->depth + inside; /* of the row of pixels */
            const bool in = h >= 0 && h < s->height;
            const int64_t begin = in ? hc_max(0, hc_min(-at, count)) : count;
            const int64_t end = in ? hc_max(begin, hc_min(width - at, count)) : count;
            for (int i = 0; i < n_limbs; i++) {
                int8_t *to = out->limb[i] + r * out->ld + done;
                if (begin > 0)
                    memset(to, 0, (size_t)begin);
                if (end > begin)
                    memcpy(to + begin, c->limb[i] + corner.image * c->columns + (plane + h) * width + at + begin,
                           (size_t)(end - begin));
                if (end < count)
                    memset(to + end, 0, (size_t)(count - end));
            }
        }
    }
}

/* Whole taps of one group of channels; one limb, one scale per image. */
static void tap_integers(const hc_code_images *c, hc_int_mode mode, int64_t first_row, int64_t rows,
                         int64_t first_column, int64_t columns, const hc_int_tile *out) {
    enum { FEW = 8, SOME = 16 };
    const hc_conv_shape *s = &c->conv->shape;
    const int64_t *dilation = c->conv->window->dilation, length = s->group_channels, depth = c->depth;
    const int64_t plane = c->planes > 1 ? c->group : 0, channel = c->planes > 1 ? 0 : c->group * length;
    for (int64_t r = 0; r < rows; r++) {
        const hc_corner corner = hc_corner_of(c->conv, first_row + r);
        store_scale(c, mode, corner.image, r, out);
        const int8_t *image = c->limb[0] + corner.image * c->columns + plane * s->height * s->width * depth + channel;
        int8_t *to = out->limb[0] + r * out->ld;
        int64_t tap = first_column / length % s->s, h = corner.h + first_column / length / s->s * dilation[0];
        for (int8_t *const end = to + columns; to < end; to += length) {
            const int64_t w = corner.w + tap * dilation[1];
            const int8_t *from = image + (h * s->width + w) * depth;
            if (h < 0 || h >= s->height || w < 0 || w >= s->width)
                memset(to, 0, (size_t)length);
            else if (length == FEW)
                memcpy(to, from, FEW);
            else if (length == SOME)
                memcpy(to, from, SOME);
            else
                memcpy(to, from, (size_t)length);
            if (++tap == s->s) {
                tap = 0;
                h += dilation[0];
            }
        }
    }
}

static void window_integers(const hc_source *source, hc_int_mode mode, int64_t first_row, int64_t rows,
                            int64_t first_column, int64_t columns, const hc_int_tile *out) {
    const hc_code_images *c = source->context;
    const hc_conv_shape *s = &c->conv->shape;
    const int64_t length = s->group_channels, depth = c->depth;
    const int64_t plane = c->planes > 1 ? c->group : 0, channel = c->planes > 1 ? 0 : c->group * length;
    const int n_limbs = source->form[mode].n_limbs;
    if (c->whole) {
        pixel_integers(c, mode, first_row, rows, first_column, columns, out);
        return;
    }
    if (c->group_size == 0 && depth == length && c->conv->window->dilation[1] == 1 && s->s > 1) {
        line_integers(c, mode, n_limbs, first_row, rows, first_column, columns, out);
        return;
    }
    if (c->group_size == 0 && n_limbs == 1 && first_column % length == 0 && columns % length == 0) {
        tap_integers(c, mode, first_row, rows, first_column, columns, out);
        return;
    }
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

static bool are_pixels(const hc_convolution *conv) {
    const int64_t *strides = conv->x->strides, size = sizeof(float);
    return strides[1] == size && strides[3] == size * conv->shape.channels;
}

/* True if codes are made from lines: of int8 with one scale per image, of pixels or planes without gaps in a row. */
static bool has_lines(const hc_convolution *conv) {
    const hc_view *x = conv->x;
    const int64_t *strides = x->strides, size = sizeof(float);
    return hc_lines_make_codes(conv) && conv->activations->group == 0 && conv->shape.width > 0 &&
           ((uintptr_t)x->data | (uintptr_t)(strides[0] | strides[1] | strides[2] | strides[3])) % 4 == 0 &&
           (are_pixels(conv) || strides[3] == size);
}

/* Rows of pixels that are read as one. */
static int64_t rows_together(const hc_convolution *conv) {
    const hc_conv_shape *s = &conv->shape;
    return conv->x->strides[2] == s->width * conv->x->strides[3] ? hc_max(1, hc_min(s->height, TOGETHER / s->width))
                                                                 : 1;
}

static void codes_of(const hc_code_images *c, const float *values, int64_t n, float scale, int8_t *to) {
    HC_PICK(codes_s8, c->conv->run)(values, n, scale, HC_PANEL_U8, to);
    for (int64_t i = 0; i < n; i++)
        to[i] = (int8_t)(to[i] ^ -128);
}

/* Some rows of a current image. */
static void lines_task(void *context, int64_t task, int thread) {
    (void)thread;
    const hc_code_images *c = context;
    const hc_conv_shape *s = &c->conv->shape;
    const hc_view *x = c->conv->x;
    const int64_t together = rows_together(c->conv), tasks = hc_ceil_div(s->height, together);
    const int64_t image = task / tasks, row = task % tasks * together, channels = s->channels;
    const int64_t n = hc_min(together, s->height - row) * s->width;
    const char *from = (const char *)x->data + (c->first + image) * x->strides[0] + row * x->strides[2];
    int8_t *to = c->limb[0] + image * c->columns + row * s->width * channels;
    const float scale = c->scales[image];
    if (are_pixels(c->conv)) {
        codes_of(c, (const float *)(const void *)from, n * channels, scale, to);
        return;
    }
    float values[PIXELS * CHANNELS] = {0};
    int8_t codes[PIXELS * CHANNELS];
    for (int64_t first = 0; first < n; first += PIXELS, from += PIXELS * sizeof *values)
        for (int64_t channel = 0; channel < channels; channel += CHANNELS) {
            const int64_t some = hc_min(CHANNELS, channels - channel), pixels = hc_min(PIXELS, n - first);
            HC_PICK(pack_x32, c->conv->run)
            (from + channel * x->strides[1], x->strides[1], (int)some, pixels, values, CHANNELS, 0);
            codes_of(c, values, pixels * CHANNELS, scale, codes);
            for (int64_t i = 0; i < pixels; i++)
                if (some == CHANNELS)
                    memcpy(to + (first + i) * channels + channel, codes + i * CHANNELS, CHANNELS);
                else
                    memcpy(to + (first + i) * channels + channel, codes + i * CHANNELS, (size_t)some);
        }
}

static hc_status begin(hc_code_images *c, const hc_convolution *conv, int64_t images, hc_error *error) {
    const hc_geometry *geometry = &conv->images->encoder.geometry;
    const hc_int_mode mode = conv->order == HC_CONV_FOLDED ? HC_INT_FOLDED : HC_INT_GROUPED;
    *c = (hc_code_images){.conv = conv, .mode = mode, .columns = geometry->whole_columns, .groups = geometry->groups};
    c->by_lines = has_lines(conv);
    c->planes = c->by_lines ? 1 : conv->images->planes;
    c->depth = c->by_lines ? conv->shape.channels : conv->images->depth;
    const hc_conv_shape *s = &conv->shape;
    const hc_window *window = conv->window;
    c->whole = c->by_lines && s->channels > 0 && s->r * s->s == 1 && window->groups == 1 && window->stride[0] == 1 &&
               window->stride[1] == 1 && window->pad_before[0] == 0 && window->pad_before[1] == 0 &&
               s->out_height == s->height && s->out_width == s->width;
    const int n_limbs = hc_integers_of(conv->activations, mode).n_limbs;
    const int64_t scales_at = hc_round_up(n_limbs * images * c->columns, HC_CACHE_LINE);
    const int64_t lines_at = hc_round_up(scales_at + images * (geometry->groups + 1) * (int64_t)sizeof(float), 64);
    c->memory = hc_alloc_aligned(lines_at + (c->by_lines ? images * conv->shape.height * 4 : 0));
    if (!c->memory)
        return hc_fail(error, HC_MEMORY, "conv2d: not enough memory for the codes of an image");
    for (int i = 0; i < n_limbs; i++)
        c->limb[i] = c->memory + i * images * c->columns;
    c->scales = (float *)(void *)(c->memory + scales_at);
    c->largest = (uint32_t *)(void *)(c->memory + lines_at);
    return HC_OK;
}

/* Makes images [first, first + n) the current ones. */
static hc_status load(hc_code_images *c, int64_t first, int64_t n, hc_error *error) {
    hc_images *images = c->conv->images;
    const hc_conv_shape *s = &c->conv->shape;
    if (c->by_lines) {
        const hc_status status = hc_images_scales(images, first, n, c->largest, c->scales, error);
        c->first = first;
        if (status == HC_OK)
            hc_parallel(c->conv->run->n_threads, n * hc_ceil_div(s->height, rows_together(c->conv)), lines_task, c);
        return status;
    }
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
    x.form[c->mode] = hc_integers_of(conv->activations, c->mode);
    x.group = c->by_lines ? 0 : conv->images->source.group;
    x.context = c;
    const hc_product product = {.run = conv->run,
                                .order = conv->order == HC_CONV_FOLDED ? HC_ORDER_FOLDED : HC_ORDER_GROUPED,
                                .x = &x,
                                .w = &w,
                                .out = hc_answer_rows(conv->out, &conv->shape, first, n, c->group * filters)};
    return hc_multiply(&product, error);
}

/* The same of images of one window: x is packed, and its rows are those of a matmul of packed arrays. */
static hc_status multiply_images(const hc_convolution *conv, int64_t first, int64_t n, hc_error *error) {
    hc_images *images = conv->images;
    hc_status status = hc_images_encode(images, first, n, error);
    if (status != HC_OK)
        return status;
    hc_filters context;
    const hc_source w = hc_filter_source(conv, 0, conv->shape.filters, &context);
    const hc_product product = {.run = conv->run,
                                .order = conv->order == HC_CONV_FOLDED ? HC_ORDER_FOLDED : HC_ORDER_GROUPED,
                                .x = &images->source,
                                .w = &w,
                                .x_packed = &images->packed,
                                .w_packed = &context.packed,
                                .out = hc_answer_rows(conv->out, &conv->shape, first, n, 0)};
    return hc_multiply(&product, error);
}

const char *hc_conv_implicit_codes_refuses(const hc_convolution *conv) {
    (void)conv;
    return NULL;
}

hc_conv_work hc_conv_implicit_codes_work(const hc_convolution *conv) {
    enum { SHORT = 64 };
    const hc_conv_shape *s = &conv->shape;
    hc_conv_work work = hc_window_work(conv);
    work.moved = hc_conv_moved_codes(conv, 0.3);
    work.is_rows = hc_one_window(conv);
    /* a short line of a window takes 8 ns to gather (3 to 64 @ 224, 7 x 7, Zen 4, 2026-11) */
    if (!work.is_rows && s->r * s->s > 1 && s->s * s->group_channels < SHORT)
        work.products += 1300 * (double)s->n * (double)(s->out_height * s->out_width * conv->window->groups * s->r);
    return work;
}

hc_status hc_conv_implicit_codes_run(const hc_convolution *conv, hc_error *error) {
    const int64_t at_once = hc_rounded_images_at_once(conv), all = conv->shape.n;
    if (hc_one_window(conv)) {
        hc_status status = HC_OK;
        for (int64_t first = 0; status == HC_OK && first < all; first += at_once)
            status = multiply_images(conv, first, hc_min(at_once, all - first), error);
        return status;
    }
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
    work.moved = hc_conv_moved_codes(conv, 0.4);
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
