/* Bands of padded codes; codes.h. */
#include "ops/conv/quantized/codes.h"

#include "base/threads.h"
#include "kernels/kernel.h"

#include <string.h>

enum {
    BAND_BYTES = 768 << 10,
    MOST_BYTES = 16 << 20, /* of one row of windows */
    SLACK = 64,            /* kernels read runs up to a multiple of 4 codes */
};

const char *hc_codes_refuse(const hc_convolution *conv, int limbs, bool patterns) {
    const hc_conv_shape *s = &conv->shape;
    const hc_format *x = conv->activations, *w = &conv->w->packed->format;
    const int x_limbs = hc_integers_of(x, HC_INT_FOLDED).n_limbs, w_limbs = hc_integers_of(w, HC_INT_FOLDED).n_limbs;
    if (x_limbs != 1 || w_limbs < 1 || w_limbs > limbs)
        return limbs == 1 ? "filters and x have no integers of 8 bits with one scale a row"
                          : "x has no integers of 8 bits, or filters none of 16, with one scale a row";
    if (x->m > 0 || (w->m > 0 && !patterns))
        return "zeros of a pattern are skipped in panels";
    if (s->r * s->s * s->group_channels == 0 || s->height * s->width == 0)
        return "there is nothing to sum";
    return NULL;
}

bool hc_codes_plan(hc_codes *c, const hc_convolution *conv, int form, bool by_groups, int64_t step) {
    const hc_conv_shape *s = &conv->shape;
    const hc_window *window = conv->window;
    const hc_view *x = conv->x;
    *c = (hc_codes){.conv = conv, .form = form, .code_bytes = form == HC_PANEL_S16 ? 2 : 1};
    c->planes = by_groups ? window->groups : 1;
    c->depth = s->channels / c->planes;
    const int64_t steps[] = {x->strides[0], c->depth * x->strides[1], x->strides[1], x->strides[2], x->strides[3]};
    memcpy(c->strides, steps, sizeof steps);
    c->width = (s->out_width - 1) * window->stride[1] + (s->s - 1) * window->dilation[1] + 1;
    c->reach = (s->r - 1) * window->dilation[0] + 1;
    int64_t line, row, values; /* bytes of a line and of a row of windows of all planes; values of an image's lines */
    if (!hc_mul_size(c->width, s->channels * c->code_bytes, &line) || !hc_mul_size(line, c->reach, &row) ||
        !hc_mul_size(s->width, s->channels, &values) || hc_max(row, values) > MOST_BYTES ||
        c->planes * s->height > MOST_BYTES)
        return false;
    const int64_t limit = hc_max(BAND_BYTES * conv->run->n_threads, row);
    const int64_t fit = limit / line, last = (s->out_height - 1) * window->stride[0];
    c->images = 1;
    c->rows = s->out_height;
    if (fit - c->reach < last) {
        c->rows = (fit - c->reach) / window->stride[0] + 1;
        c->rows = c->rows > step ? c->rows / step * step : c->rows;
    } else {
        c->images = hc_min(s->n, fit / (last + c->reach));
    }
    /* With strides, some values are in no window; they are quantized, too. */
    c->images = hc_min(c->images, hc_max(1, BAND_BYTES / hc_max(values, 4 * c->planes * s->height)));
    c->height = (c->rows - 1) * window->stride[0] + c->reach;
    c->n_bands = hc_ceil_div(s->n, c->images) * hc_ceil_div(s->out_height, c->rows);
    c->row_step = c->width * c->depth;
    c->plane_step = c->height * c->row_step;
    c->image_step = c->planes * c->plane_step;
    if (conv->link && conv->link->codes) { /* the whole image is one band */
        c->images = 1;
        c->rows = s->out_height;
        c->n_bands = 1;
        c->row_step = conv->link->line;
        c->plane_step = c->image_step = 0;
        c->height = 0;
    }
    const bool by_lines = hc_lines_make_codes(conv);
    c->in_place = (uintptr_t)x->data % sizeof(float) == 0 && x->strides[0] % 4 == 0 && x->strides[1] == 4 &&
                  x->strides[2] % 4 == 0 && x->strides[3] == c->depth * 4 && c->planes == 1;
    c->values_at = hc_round_up(s->width * c->depth + SLACK, HC_CACHE_LINE);
    c->thread_bytes =
        c->values_at + (by_lines && !c->in_place ? hc_round_up(s->width * c->depth * 4, HC_CACHE_LINE) : 0);
    return true;
}

static int64_t band_bytes(const hc_codes *c) {
    return hc_round_up(c->images * c->image_step * c->code_bytes + SLACK, HC_CACHE_LINE);
}

int64_t hc_codes_bytes(const hc_codes *c) {
    const hc_conv_shape *s = &c->conv->shape;
    const int64_t lines = c->images * (c->planes * c->height + s->height);
    const int64_t codes = hc_lines_make_codes(c->conv) ? 0 : c->images * s->height * s->width * s->channels;
    return band_bytes(c) + c->conv->run->n_threads * c->thread_bytes + (lines + c->images) * 4 + codes;
}

hc_status hc_codes_begin(hc_codes *c, hc_error *error) {
    const hc_run *run = c->conv->run;
    const int64_t own_at = band_bytes(c), scales_at = own_at + run->n_threads * c->thread_bytes;
    const int64_t lines = c->images * c->planes * c->height;
    c->memory = hc_alloc_aligned(scales_at + (lines + c->images + c->images * c->conv->shape.height) * 4);
    if (!c->memory)
        return hc_fail(error, HC_MEMORY, "conv2d: not enough memory for the codes of an image");
    c->own = c->memory + own_at;
    c->line_scale = (float *)(void *)(c->memory + scales_at);
    c->scale = c->line_scale + lines;
    c->largest = (uint32_t *)(void *)(c->scale + c->images);
    memset(c->memory + own_at - SLACK, 0, SLACK);
    c->codes = c->conv->link && c->conv->link->codes ? c->conv->link->codes : c->memory;
    return HC_OK;
}

void hc_codes_free(hc_codes *c) { hc_free_aligned(c->memory); }

/* Line `line` of the lines (image, plane, h) of all of x. */
static const char *line_at(const hc_codes *c, int64_t line) {
    const int64_t height = c->conv->shape.height, *strides = c->strides;
    return (const char *)c->conv->x->data + line / height / c->planes * strides[0] +
           line / height % c->planes * strides[1] + line % height * strides[3];
}

/* Values of that line with contiguous channels: in place, or copied to `values`. */
static const float *read_line(const hc_codes *c, int64_t line, float *values) {
    const hc_conv_shape *s = &c->conv->shape;
    const int64_t *strides = c->strides;
    const char *from = line_at(c, line);
    if (c->in_place)
        return (const float *)(const void *)from;
    if (strides[4] == 4 && strides[2] % 4 == 0) {
        hc_pack_x32_fn *transpose = HC_PICK(pack_x32, c->conv->run);
        for (int64_t i = 0; i < c->depth; i += 16)
            transpose(from + i * strides[2], strides[2], (int)hc_min(16, c->depth - i), s->width, values + i,
                      (int)c->depth, 0);
        return values;
    }
    for (int64_t w = 0; w < s->width; w++, from += strides[4], values += c->depth)
        if (strides[2] == 4)
            memcpy(values, from, (size_t)c->depth * sizeof *values);
        else
            hc_read_floats(from, HC_F32, strides[2], c->depth, values);
    return values - s->width * c->depth;
}

/* Writes the packed codes of line (plane, h) and returns their scale. If all channels were packed together, those of a
 * plane are read pixel by pixel. */
static float packed_codes(const hc_codes *c, int64_t image, int64_t plane, int64_t h, int8_t *codes) {
    const hc_images *images = c->conv->images;
    const int64_t width = c->conv->shape.width, channels = c->conv->shape.channels;
    const bool apart = images->planes != c->planes;
    const int64_t n = apart ? c->depth : width * c->depth, parts = apart ? width : 1;
    const int64_t step = apart ? channels : n;
    const int64_t first = apart ? h * width * channels + plane * c->depth : (plane * c->conv->shape.height + h) * n;
    float scale = 0;
    for (int64_t i = 0; i < parts; i++) {
        const hc_int_tile tile = {.limb = {codes + i * n}, .ld = n, .row_scale = &scale};
        images->source.integers(&images->source, HC_INT_FOLDED, image, 1, first + i * step, n, &tile);
    }
    return scale;
}

/* Writes the codes of a line in the kernels' layout, as many as fit into `to`; returns its scale. */
static float line_codes(const hc_codes *c, int64_t image, int64_t plane, int64_t h, int64_t n, uint8_t *own,
                        uint8_t *to) {
    const int64_t height = c->conv->shape.height;
    const hc_images *images = c->conv->images;
    if (images->by_lines) {
        const int64_t line = ((c->answers.image + image) * c->planes + plane) * height + h;
        const float *values = read_line(c, line, (float *)(void *)(own + c->values_at));
        HC_PICK(codes_s8, c->conv->run)(values, n, c->scale[image], c->form, to);
        return c->scale[image];
    }
    const int8_t *codes = (const int8_t *)own;
    const float scale = packed_codes(c, image, plane, h, (int8_t *)own);
    int16_t *words = c->form == HC_PANEL_S16 ? (int16_t *)(void *)to : NULL;
    for (int64_t i = 0; i < n && words; i++)
        words[i] = codes[i];
    for (int64_t i = 0; i < n && !words; i++)
        to[i] = (uint8_t)codes[i] ^ 0x80;
    return scale;
}

/* Line `task` of the band, (image, plane, line). */
static void fill_task(void *context, int64_t task, int thread) {
    const hc_codes *c = context;
    const hc_conv_shape *s = &c->conv->shape;
    const hc_window *window = c->conv->window;
    const int64_t line = task % c->height, plane = task / c->height % c->planes, image = task / c->height / c->planes;
    const int64_t h = c->answers.row * window->stride[0] - window->pad_before[0] + line;
    const int64_t before = hc_min(window->pad_before[1], c->width), inside = hc_min(s->width, c->width - before);
    const int64_t size = c->code_bytes, left = before * c->depth, n = inside * c->depth, end = left + n;
    uint8_t *to = c->memory + task * c->row_step * size, *own = c->own + thread * c->thread_bytes;
    const int zero = c->form == HC_PANEL_S16 ? 0 : 128;
    c->line_scale[task] = 0;
    if (h < 0 || h >= s->height || inside == 0) {
        memset(to, zero, (size_t)(c->row_step * size));
        return;
    }
    memset(to, zero, (size_t)(left * size));
    c->line_scale[task] = line_codes(c, image, plane, h, n, own, to + left * size);
    memset(to + end * size, zero, (size_t)((c->row_step - end) * size));
}

hc_status hc_codes_band(hc_codes *c, int64_t band, hc_error *error) {
    const hc_conv_shape *s = &c->conv->shape;
    const int64_t parts = hc_ceil_div(s->out_height, c->rows), row = band % parts * c->rows;
    hc_pixels *answers = &c->answers;
    *answers = (hc_pixels){.conv = c->conv, .image = band / parts * c->images, .row = row};
    answers->n_images = hc_min(c->images, s->n - answers->image);
    answers->n_rows = hc_min(c->rows, s->out_height - row);
    answers->answers = answers->n_images * answers->n_rows * s->out_width;
    hc_images *images = c->conv->images;
    hc_status status = HC_OK;
    if (c->codes != c->memory) {
        c->scale[0] = c->conv->link->scale;
        return HC_OK;
    }
    if (row == 0 && images->by_lines)
        status = hc_images_scales(images, answers->image, answers->n_images, c->largest, c->scale, error);
    else if (row == 0)
        status = hc_images_encode(images, answers->image, answers->n_images, error);
    if (status != HC_OK)
        return status;
    const int64_t lines = c->planes * c->height;
    hc_parallel(c->conv->run->n_threads, answers->n_images * lines, fill_task, c);
    for (int64_t i = 0; i < answers->n_images && !images->by_lines; i++) { /* the scale of a line of padding is 0 */
        c->scale[i] = 0;
        for (int64_t line = 0; line < lines && c->scale[i] == 0; line++)
            c->scale[i] = c->line_scale[i * lines + line];
    }
    return HC_OK;
}

void hc_code_windows(const hc_codes *c, int64_t group, int64_t first, int n, const void **rows, float *scales) {
    const int64_t *stride = c->conv->window->stride, width = c->conv->shape.out_width, height = c->answers.n_rows;
    const int64_t corner = group * (c->planes > 1 ? c->plane_step : c->conv->shape.group_channels);
    int64_t q = first % width, p = first / width % height, image = first / width / height;
    for (int i = 0; i < n; i++) {
        const int64_t at = image * c->image_step + corner + p * stride[0] * c->row_step + q * stride[1] * c->depth;
        rows[i] = c->codes + at * c->code_bytes;
        scales[i] = c->scale[image];
        if (++q == width) {
            q = 0;
            if (++p == height)
                p = 0, image++;
        }
    }
}
