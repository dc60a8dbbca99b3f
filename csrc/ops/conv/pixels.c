/* Images in place or in bands, and the writing of tiles to the result; pixels.h. */
#include "ops/conv/pixels.h"

#include "base/threads.h"
#include "kernels/kernel.h"

#include <string.h>

enum {
    BAND_BYTES = 768 << 10, /* leaves 1 MiB per thread for a tile's pointers and a panel's end */
    FEW_CHANNELS = 16,      /* fewer channels are less than a cache line; joined, they are one stream per row */
    PERIOD = 4096,    /* bytes between pixels that share a cache set of L1, in which the rows of a tile do not fit */
    FEW_FILTERS = 64, /* fewer filters are not worth the copy */
    FEW_COLUMNS = 64, /* of padding that are copied with a row, even if the row is shorter */
    TOGETHER = 256,   /* pixels of planes that are copied at once, so that few are in a part of a register */
    CONVERTED = 64,   /* pixels of other types that are converted at once */
    STAGED = 64,      /* filters of a task that writes planes */
};

static bool clash(int64_t step) { return step && step % PERIOD == 0; }

const char *hc_wide_rows(const hc_convolution *conv, int64_t rows) {
    enum { MOST_BYTES = 40 << 20, FEWEST = 4 /* channels for which there is memory in a pixel of phases */ };
    const hc_conv_shape *s = &conv->shape;
    int64_t row, bytes;
    const bool fits = hc_mul_size(s->width, hc_round_up(s->channels, FEWEST) * (int64_t)sizeof(float), &row) &&
                      hc_mul_size(row, hc_min(rows, s->height), &bytes) && bytes <= MOST_BYTES;
    return fits ? NULL : "the rows of the image that a row of windows needs take more than 40 MiB";
}

/* True if pixels of a row are next to each other and channels are transposed. */
static bool is_of_planes(const hc_view *x) {
    const int64_t size = hc_dtype_size(x->dtype);
    return x->strides[3] == size && x->strides[1] % size == 0;
}

static void init(hc_pixels *p, const hc_convolution *conv, bool may_join, int64_t step, int64_t band_bytes) {
    const hc_conv_shape *s = &conv->shape;
    const hc_view *x = conv->x;
    const int64_t size = sizeof(float);
    *p = (hc_pixels){.conv = conv};
    /* The last window may end before the image does. */
    const int64_t before = conv->window->pad_before[1];
    const int64_t after = (s->out_width - 1) * conv->window->stride[1] + s->s - before - s->width;
    const int64_t padding = hc_max(hc_max(before, after), 0);
    int64_t padded; /* bytes of an image */
    p->joins = may_join && conv->window->groups == 1 && conv->window->dilation[1] == 1 && s->s > 1 &&
               s->group_channels < FEW_CHANNELS && padding <= hc_max(s->width, FEW_COLUMNS) &&
               hc_mul_size(s->height, (s->width + 2 * padding) * s->channels * size, &padded);
    p->copies =
        p->joins || x->dtype != HC_F32 || (uintptr_t)x->data % sizeof(float) ||
        (x->strides[1] != size && s->channels > 1) || x->strides[0] % size || x->strides[2] % size ||
        x->strides[3] % size ||
        (may_join && clash(x->strides[3] * conv->window->stride[1]) && s->filters / conv->window->groups > FEW_FILTERS);
    p->taps = p->joins ? s->r : s->r * s->s;
    p->run = p->joins ? s->s * s->group_channels : s->group_channels;
    p->images = s->n;
    p->rows = s->out_height;
    p->n_bands = 1;
    int64_t floats = 0;
    if (p->copies) {
        const hc_window *window = conv->window;
        const int64_t limit = band_bytes * conv->run->n_threads;
        p->left = p->joins ? padding : 0;
        p->pixel_step = s->channels * size;
        if (clash(p->pixel_step * window->stride[1]))
            p->pixel_step += HC_CACHE_LINE;
        p->row_step = (s->width + 2 * p->left) * p->pixel_step;
        const int64_t reach = (s->r - 1) * window->dilation[0] + 1;
        const int64_t whole = s->height * p->row_step;
        if (whole <= limit) {
            p->images = hc_min(s->n, hc_max(1, limit / hc_max(whole, 1)));
        } else {
            const int64_t fit = (limit / p->row_step - reach) / window->stride[0] + 1;
            p->images = 1;
            p->rows = hc_min(s->out_height, hc_max(step, fit / step * step));
        }
        p->height = hc_min(s->height, (p->rows - 1) * window->stride[0] + reach);
        p->image_step = p->height * p->row_step;
        p->n_bands = hc_ceil_div(s->n, p->images) * hc_ceil_div(s->out_height, p->rows);
        floats = p->images * p->image_step / size;
        p->together = 1;
        if (p->left == 0 && is_of_planes(x) && x->strides[2] == s->width * x->strides[3])
            p->together = hc_max(1, hc_min(p->height, TOGETHER / hc_max(s->width, 1)));
    } else {
        p->data = x->data;
        p->image_step = x->strides[0];
        p->row_step = x->strides[2];
        p->pixel_step = x->strides[3];
    }
    p->bytes = (hc_round_up(floats, 16) + hc_round_up(hc_max(s->channels, p->run), 16)) * size;
}

void hc_pixels_init(hc_pixels *p, const hc_convolution *conv, bool may_join, int64_t step) {
    init(p, conv, may_join, step, BAND_BYTES);
}

void hc_pixels_stage(hc_pixels *p, const hc_convolution *conv, int64_t step) {
    const hc_conv_shape *s = &conv->shape;
    const hc_view *out = conv->out;
    const int64_t size = sizeof(float), line = s->out_width * s->filters * size;
    const bool planes = s->filters > 1 && s->filters <= INT32_MAX / size && out->strides[3] == size &&
                        out->strides[1] > size && out->strides[1] % size == 0 && out->strides[1] / size <= INT32_MAX &&
                        out->strides[2] == s->out_width * size;
    init(p, conv, false, step, planes ? BAND_BYTES / 2 : BAND_BYTES);
    if (!planes || p->rows * p->images > BAND_BYTES * 2 / 3 * conv->run->n_threads / hc_max(line, 1)) {
        init(p, conv, false, step, BAND_BYTES);
        return;
    }
    const int64_t steps[4] = {p->rows * line, size, line, s->filters * size};
    memcpy(p->stage_step, steps, sizeof steps);
    p->stage_bytes = p->images * p->rows * line;
}

bool hc_phases_init(hc_pixels *p, const hc_convolution *conv, int64_t step) {
    const hc_conv_shape *s = &conv->shape;
    const int64_t size = sizeof(float), limit = BAND_BYTES * conv->run->n_threads, taps = (s->r + 1) / 2;
    if (s->channels >= FEW_CHANNELS || conv->window->groups > 1)
        return false;
    *p = (hc_pixels){.conv = conv, .copies = true, .phases = true, .run = 4 * s->channels};
    p->pixel_step = hc_round_up(p->run, 16) * size;
    p->row_step = (s->out_width + (s->s + 1) / 2 - 1) * p->pixel_step;
    const int64_t fit = limit / p->row_step - (taps - 1), whole = (s->out_height + taps - 1) * p->row_step;
    p->images = hc_max(1, hc_min(s->n, limit / whole));
    p->rows = hc_min(s->out_height, whole <= limit ? s->out_height : hc_max(step, fit / step * step));
    p->height = p->rows + taps - 1;
    p->image_step = p->height * p->row_step;
    p->n_bands = hc_ceil_div(s->n, p->images) * hc_ceil_div(s->out_height, p->rows);
    p->bytes = p->images * p->image_step + hc_round_up(p->run, 16) * size;
    return true;
}

bool hc_pixels_alloc(hc_pixels *p) {
    p->memory = hc_alloc_aligned(p->bytes + p->stage_bytes);
    if (!p->memory)
        return false;
    p->stage = hc_offset(p->memory, p->bytes);
    const int64_t zeros = hc_round_up(hc_max(p->conv->shape.channels, p->run), 16);
    p->zeros = p->memory + p->bytes / (int64_t)sizeof(float) - zeros;
    memset(p->zeros, 0, (size_t)zeros * sizeof(float));
    if (p->copies)
        p->data = (const char *)p->memory;
    return true;
}

void hc_pixels_free(hc_pixels *p) { hc_free_aligned(p->memory); }

/* n pixels of planes of any type: some are converted, then transposed. */
static void convert_planes(const hc_pixels *p, const char *from, int64_t n, float *to, int64_t step) {
    enum { LANES = 16 };
    const hc_view *x = p->conv->x;
    const int64_t channels = p->conv->shape.channels, size = hc_dtype_size(x->dtype);
    float values[LANES * CONVERTED];
    for (int64_t c = 0; c < channels; c += LANES) {
        const int some = (int)hc_min(LANES, channels - c);
        for (int64_t first = 0; first < n; first += CONVERTED) {
            const int64_t pixels = hc_min(CONVERTED, n - first);
            for (int i = 0; i < some; i++)
                hc_read_floats(from + (c + i) * x->strides[1] + first * size, x->dtype, size, pixels,
                               values + i * CONVERTED);
            HC_PICK(pack_x32, p->conv->run)
            (values, CONVERTED * sizeof(float), some, pixels, to + first * step + c, (int)step, 0);
        }
    }
}

/* Some rows of one image of the band, p->together at once. */
static void copy_rows(void *context, int64_t task, int thread) {
    (void)thread;
    const hc_pixels *p = context;
    const hc_conv_shape *s = &p->conv->shape;
    const hc_view *x = p->conv->x;
    const int64_t tasks = hc_ceil_div(p->height, p->together), first = task % tasks * p->together;
    const int64_t image = task / tasks, h = p->top + first, channels = s->channels;
    const int64_t rows = hc_min(hc_min(p->together, p->height - first), s->height - h), n = rows * s->width;
    const int64_t step = p->pixel_step / (int64_t)sizeof(float);
    if (rows <= 0)
        return;
    const char *from = (const char *)x->data + (p->image + image) * x->strides[0] + h * x->strides[2];
    float *to = p->memory + (image * p->image_step + first * p->row_step) / (int64_t)sizeof(float);
    memset(to, 0, (size_t)(p->left * p->pixel_step));
    to += p->left * step;
    if (is_of_planes(x) && x->dtype == HC_F32 && step <= INT32_MAX / 4) {
        hc_pack_x32_fn *transpose = HC_PICK(pack_x32, p->conv->run);
        for (int64_t c = 0; c < channels; c += 16)
            transpose(from + c * x->strides[1], x->strides[1], (int)hc_min(16, channels - c), n, to + c, (int)step, 0);
    } else if (is_of_planes(x) && channels > 1 && step <= INT32_MAX / 4) {
        convert_planes(p, from, n, to, step);
    } else if (x->strides[1] * channels == x->strides[3] && step == channels) {
        hc_read_floats(from, x->dtype, x->strides[1], channels * n, to);
    } else {
        for (int64_t w = 0; w < n; w++)
            hc_read_floats(from + w * x->strides[3], x->dtype, x->strides[1], channels, to + w * step);
    }
    memset(to + n * step, 0, (size_t)(p->left * p->pixel_step));
}

/* Copies n values, or pixels of constant size, to every 4 C-th position. */
__attribute__((always_inline)) static inline void spread(const char *from, int64_t step, int64_t n, const int channels,
                                                         float *to, int64_t to_step) {
    for (int64_t i = 0; i < n; i++)
        memcpy(to + i * to_step, from + i * step, (size_t)channels * sizeof(float));
}

static void spread_any(const hc_view *x, const char *from, int64_t n, int64_t channels, float *to, int64_t to_step) {
    const int64_t step = 2 * x->strides[3];
    const bool together = x->dtype == HC_F32 && (x->strides[1] == sizeof(float) || channels == 1);
    if (together && channels == 3)
        spread(from, step, n, 3, to, to_step);
    else if (together && channels == 1)
        spread(from, step, n, 1, to, to_step);
    else
        for (int64_t i = 0; i < n; i++)
            hc_read_floats(from + i * step, x->dtype, x->strides[1], channels, to + i * to_step);
}

/* One row of phases of one image of the band. */
static void copy_phases(void *context, int64_t task, int thread) {
    (void)thread;
    static const int PHASE[2][2] = {{1, 0}, {2, 3}};
    const hc_pixels *p = context;
    const hc_conv_shape *s = &p->conv->shape;
    const hc_view *x = p->conv->x;
    const int64_t *before = p->conv->window->pad_before, channels = s->channels;
    const int64_t image = task / p->height, line = p->row + task % p->height,
                  step = p->pixel_step / (int64_t)sizeof(float);
    /* Pixels that no output uses stay 0. */
    const int64_t rows = hc_min(s->height, (s->out_height - 1) * 2 + s->r - before[0]);
    const int64_t columns = hc_min(s->width, (s->out_width - 1) * 2 + s->s - before[1]);
    float *to = p->memory + (image * p->image_step + task % p->height * p->row_step) / (int64_t)sizeof(float);
    memset(to, 0, (size_t)p->row_step);
    for (int a = 0; a < 2; a++)
        for (int b = 0; b < 2; b++) {
            const int64_t h = 2 * line + a - before[0], first = hc_max(0, (before[1] - b + 1) / 2);
            const int64_t w = 2 * first + b - before[1];
            if (h >= 0 && h < rows && w < columns)
                spread_any(x,
                           (const char *)x->data + (p->image + image) * x->strides[0] + h * x->strides[2] +
                               w * x->strides[3],
                           (columns - w + 1) / 2, channels, to + first * step + PHASE[a][b] * channels, step);
        }
}

void hc_pixels_band(hc_pixels *p, int64_t band) {
    const hc_conv_shape *s = &p->conv->shape;
    const hc_window *window = p->conv->window;
    const int64_t parts = hc_ceil_div(s->out_height, p->rows);
    p->band = band;
    p->image = band / parts * p->images;
    p->n_images = hc_min(p->images, s->n - p->image);
    p->row = band % parts * p->rows;
    p->n_rows = hc_min(p->rows, s->out_height - p->row);
    p->answers = p->n_images * p->n_rows * s->out_width;
    if (p->phases) {
        p->top = p->row;
        hc_parallel(p->conv->run->n_threads, p->n_images * p->height, copy_phases, p);
        return;
    }
    if (!p->copies)
        return;
    p->top = hc_max(0, p->row * window->stride[0] - window->pad_before[0]);
    hc_parallel(p->conv->run->n_threads, p->n_images * hc_ceil_div(p->height, p->together), copy_rows, p);
}

/* Output `answer` of the band as image of the band, and row and column of the output. */
typedef struct {
    int64_t image, p, q;
} hc_answer;

static hc_answer answer_of(const hc_pixels *p, int64_t answer) {
    const int64_t width = p->conv->shape.out_width, row = answer / width;
    return (hc_answer){row / p->n_rows, p->row + row % p->n_rows, answer % width};
}

static void next_answer(const hc_pixels *p, hc_answer *at) {
    if (++at->q < p->conv->shape.out_width)
        return;
    at->q = 0;
    if (++at->p < p->row + p->n_rows)
        return;
    at->p = p->row;
    at->image++;
}

/* How many of n columns, `step` apart from w on, are left of column `column`. */
static int64_t before(int64_t column, int64_t w, int64_t step, int64_t n) {
    return hc_max(0, hc_min(n, column > w ? (column - w - 1) / step + 1 : 0));
}

void hc_windows(const hc_pixels *p, int64_t channel, int64_t first, int64_t n, int stride, const float **rows) {
    const hc_conv_shape *s = &p->conv->shape;
    const hc_window *window = p->conv->window;
    const int64_t columns = p->joins ? 1 : s->s, step = window->stride[1];
    const float *zeros = p->zeros + channel;
    hc_answer at = answer_of(p, first);
    for (int64_t i = 0, some; i < n; i += some, at.q += some - 1, next_answer(p, &at)) {
        some = hc_min(n - i, s->out_width - at.q); /* of one row */
        const int64_t h = at.p * window->stride[0] - window->pad_before[0];
        for (int64_t t = 0; t < columns; t++) {
            const int64_t w = at.q * step - window->pad_before[1] + t * window->dilation[1];
            const int64_t begin = before(-p->left, w, step, some), end = before(s->width + p->left, w, step, some);
            for (int64_t r = 0; r < s->r; r++) {
                const int64_t row = h + r * window->dilation[0];
                const float **to = rows + (r * columns + t) * stride + i;
                const bool inside = row >= 0 && row < s->height;
                const int64_t from = inside ? begin : some, last = inside ? hc_max(begin, end) : some;
                for (int64_t j = 0; j < from; j++)
                    to[j] = zeros;
                const char *data =
                    inside ? (const char *)(hc_pixel(p, at.image, row, w + from * step) + channel) : NULL;
                for (int64_t j = from; j < last; j++)
                    to[j] = (const float *)(const void *)(data + (j - from) * step * p->pixel_step);
                for (int64_t j = last; j < some; j++)
                    to[j] = zeros;
            }
        }
    }
}

static char *place_of(const hc_pixels *p, const hc_answer *at, int64_t filter) {
    const int64_t *steps = hc_answer_steps(p);
    if (p->stage_bytes)
        return (char *)p->stage + at->image * steps[0] + filter * steps[1] + (at->p - p->row) * steps[2] +
               at->q * steps[3];
    return (char *)p->conv->out->data + (p->image + at->image) * steps[0] + filter * steps[1] + at->p * steps[2] +
           at->q * steps[3];
}

/* Some filters of an image of the band. */
static void write_planes(void *context, int64_t task, int thread) {
    (void)thread;
    enum { LANES = 16 };
    const hc_pixels *p = context;
    const hc_conv_shape *s = &p->conv->shape;
    const hc_view *out = p->conv->out;
    const int64_t tasks = hc_ceil_div(s->filters, STAGED), filter = task % tasks * STAGED, image = task / tasks;
    const int64_t some = hc_min(STAGED, s->filters - filter), pixels = p->n_rows * s->out_width;
    const char *from = (const char *)p->stage + image * p->stage_step[0] + filter * p->stage_step[1];
    char *to =
        (char *)out->data + (p->image + image) * out->strides[0] + filter * out->strides[1] + p->row * out->strides[2];
    for (int64_t i = 0; i < pixels; i += LANES, from += LANES * p->stage_step[3], to += LANES * sizeof(float))
        HC_PICK(pack_x32, p->conv->run)
    (from, p->stage_step[3], (int)hc_min(LANES, pixels - i), some, to, (int)(out->strides[1] / 4), 0);
}

void hc_pixels_end(hc_pixels *p) {
    if (p->stage_bytes)
        hc_parallel(p->conv->run->n_threads, p->n_images * hc_ceil_div(p->conv->shape.filters, STAGED), write_planes,
                    p);
}

float *hc_answers_at(const hc_pixels *p, int64_t first, int n, int64_t first_filter, int64_t *ld) {
    const hc_conv_shape *s = &p->conv->shape;
    const int64_t *steps = hc_answer_steps(p), size = sizeof(float), step = steps[3];
    const hc_answer at = answer_of(p, first);
    const bool one_row = at.q + n <= s->out_width;
    const bool rows_follow = steps[2] == s->out_width * step;
    const bool one_image = (at.p - p->row) * s->out_width + at.q + n <= p->n_rows * s->out_width;
    const bool images_follow = p->n_rows == s->out_height && steps[0] == s->out_height * steps[2];
    if (steps[1] != size || step % size || !(one_row || (rows_follow && (one_image || images_follow))))
        return NULL;
    *ld = step / size;
    return (float *)(void *)place_of(p, &at, first_filter);
}

static float bias_of(const hc_convolution *conv, int64_t filter) {
    float value;
    memcpy(&value, (const char *)conv->bias->data + filter * conv->bias->strides[0], sizeof value);
    return value;
}

void hc_write_answers(const hc_pixels *p, int64_t first, int n, int64_t first_filter, int64_t filters,
                      const float *values, int64_t ld) {
    const hc_convolution *conv = p->conv;
    const hc_view *out = conv->out;
    enum { MOST = 64, TILE = 16 * MOST };
    float finished[TILE];
    HC_ASSUME(n <= 16 && filters <= MOST);
    hc_answer at = answer_of(p, first);
    int64_t to_ld;
    float *place = hc_answers_at(p, first, n, first_filter, &to_ld);
    if (conv->bias || conv->relu) {
        float bias[MOST];
        for (int64_t j = 0; j < filters; j++)
            bias[j] = conv->bias ? bias_of(conv, first_filter + j) : -0.0f;
        for (int i = 0; i < n; i++) {
            float *to = place ? place + i * to_ld : finished + i * filters;
            const float *from = values + i * ld;
            if (conv->relu)
                for (int64_t j = 0; j < filters; j++)
                    to[j] = hc_finished(from[j], bias[j], true);
            else
                for (int64_t j = 0; j < filters; j++)
                    to[j] = hc_finished(from[j], bias[j], false);
        }
        if (place)
            return;
        values = finished;
        ld = filters;
    }
    if (place) {
        for (int i = 0; i < n && place != values; i++)
            memcpy(place + i * to_ld, values + i * ld, (size_t)filters * sizeof(float));
        return;
    }
    const bool side_by_side = out->strides[3] == sizeof(float) && out->strides[1] > 0 && out->strides[1] % 4 == 0 &&
                              out->strides[1] / 4 <= INT32_MAX;
    const bool joined = out->strides[2] == conv->shape.out_width * out->strides[3];
    for (int i = 0; i < n;) {
        char *to = place_of(p, &at, first_filter);
        const int64_t rows = joined ? p->row + p->n_rows - at.p : 1; /* of outputs that are next to each other */
        const int even = (int)hc_min(n - i, rows * conv->shape.out_width - at.q);
        if (side_by_side) {
            HC_PICK(pack_x32, conv->run)(values + i * ld, ld * 4, even, filters, to, (int)(out->strides[1] / 4), 0);
        } else {
            for (int e = 0; e < even; e++)
                for (int64_t j = 0; j < filters; j++)
                    memcpy(to + e * out->strides[3] + j * out->strides[1], values + (i + e) * ld + j, sizeof(float));
        }
        i += even;
        for (int e = 0; e < even; e++)
            next_answer(p, &at);
    }
}

void hc_link_begin(const hc_pixels *p, int64_t first, int n, hc_link_rows *rows) {
    const hc_convolution *conv = p->conv;
    const hc_conv_link *link = conv->link;
    const int64_t width = conv->shape.out_width, depth = conv->shape.filters, at = (p->row * width + first) * depth;
    rows->kernel = HC_PICK(link_s32, conv->run);
    rows->tile = (hc_link_tile){.steps = link->steps,
                                .code_scale = link->to_scale,
                                .plus = link->plus ? link->plus + at : NULL,
                                .to = link->floats ? (float *)conv->out->data + at : NULL,
                                .step = depth,
                                .codes = link->to ? rows->codes : NULL};
    int64_t row = p->row + first / width, q = first % width;
    for (int i = 0; i < n && link->to; i++) {
        rows->codes[i] = link->to + row * link->to_line + q * depth;
        if (++q == width)
            q = 0, row++;
    }
}

void hc_link_sums(const hc_pixels *p, const hc_link_rows *rows, int n, int64_t filter, int64_t filters,
                  const int32_t *sums, int64_t ld, float scale, const float *scales) {
    const hc_convolution *conv = p->conv;
    hc_conv_link *link = conv->link;
    hc_link_tile tile = rows->tile;
    tile.sums = sums;
    tile.ld = ld;
    tile.scale = scale;
    tile.scales = scales;
    tile.bias = conv->bias ? (const float *)conv->bias->data + filter : NULL;
    tile.plus = tile.plus ? tile.plus + filter : NULL;
    tile.to = tile.to ? tile.to + filter : NULL;
    tile.at = filter;
    uint32_t known = __atomic_load_n(&link->largest, __ATOMIC_RELAXED);
    const uint32_t largest = rows->kernel(n, filters, &tile, known);
    while (known < largest &&
           !__atomic_compare_exchange_n(&link->largest, &known, largest, true, __ATOMIC_RELAXED, __ATOMIC_RELAXED))
        ;
}
