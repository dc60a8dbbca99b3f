/* Bands of images whose planes lie one after the other; planes.h. */
#include "ops/conv/planes.h"

#include <string.h>

enum {
    BAND_BYTES = 256 << 10, /* stays in L2 with as many bytes of filters */
    FEW_FILTERS = 12,       /* read pixels in place, wherever they lie */
    PERIOD = 4096,          /* bytes between pixels that share a cache set of L1 */
    WAYS = 4,               /* pixels of other channels that stay in a set, with neighbours of each */
};

static bool whole(int64_t bytes) { return bytes % (int64_t)sizeof(float) == 0; }

const char *hc_planes_refuse(const hc_convolution *conv) {
    const hc_conv_shape *s = &conv->shape;
    const hc_view *x = conv->x, *out = conv->out;
    const int64_t size = sizeof(float);
    if (s->r * s->s * s->group_channels == 0)
        return "there is nothing to sum";
    if ((x->strides[3] != hc_dtype_size(x->dtype) && s->width > 1) || (out->strides[3] != size && s->out_width > 1))
        return "pixels of a row are not next to each other";
    if ((uintptr_t)out->data % sizeof(float) || !whole(out->strides[0]) || !whole(out->strides[1]) ||
        !whole(out->strides[2]))
        return "outputs are not aligned";
    return NULL;
}

/* Sets the size of a band's copy. */
static void set_band(hc_planes *p, int64_t rows, int64_t columns) {
    const int64_t at_once[2] = {rows, columns}, line = HC_CACHE_LINE / (int64_t)sizeof(float);
    int64_t pixels = 1;
    for (int i = 0; i < 2; i++) {
        hc_planes_axis *a = &p->axis[i];
        a->at_once = at_once[i];
        a->of_phase = at_once[i] + (a->taps - 1) * a->dilation / a->stride;
        a->bands = hc_ceil_div(a->answers, at_once[i]);
        pixels *= a->phases * a->of_phase;
    }
    /* an odd number of cache lines: channels are in all sets of L1 */
    p->plane = hc_round_up(pixels, line) / line % 2 ? hc_round_up(pixels, line) : hc_round_up(pixels, line) + line;
    if (p->channels == 1)
        p->plane = hc_round_up(pixels, line);
    p->copied = p->channels * p->plane + hc_round_up(p->lanes, line);
}

/* n split into as few equal parts of at most `most` as possible. */
static int64_t even(int64_t n, int64_t most) { return hc_ceil_div(n, hc_ceil_div(n, hc_max(most, 1))); }

/* True if a pixel of each channel stays in L1 although the planes of the image are `step` bytes apart. */
static bool spread(int64_t step, int64_t channels) {
    int64_t apart = PERIOD; /* bytes between the places in L1 */
    while (apart > HC_CACHE_LINE && step % apart)
        apart /= 2;
    return apart <= HC_CACHE_LINE || channels <= PERIOD / apart * WAYS;
}

void hc_planes_init(hc_planes *p, const hc_convolution *conv, int64_t lanes) {
    const hc_conv_shape *s = &conv->shape;
    const hc_window *window = conv->window;
    const hc_view *x = conv->x, *out = conv->out;
    const int64_t size = sizeof(float), in[2] = {s->height, s->width}, answers[2] = {s->out_height, s->out_width},
                  taps[2] = {s->r, s->s};
    *p = (hc_planes){.conv = conv, .lanes = lanes, .channels = s->group_channels};
    bool simple = true;
    for (int i = 0; i < 2; i++) {
        const int64_t reach = (taps[i] - 1) * window->dilation[i] + 1;
        p->axis[i] = (hc_planes_axis){.size = in[i],
                                      .answers = answers[i],
                                      .taps = taps[i],
                                      .stride = window->stride[i],
                                      .dilation = window->dilation[i],
                                      .before = window->pad_before[i],
                                      .phases = hc_min(window->stride[i], reach)};
        simple = simple && taps[i] == 1 && window->stride[i] == 1 && window->pad_before[i] == 0 && answers[i] == in[i];
    }
    p->joined = simple && (s->height == 1 ||
                           (x->strides[2] == s->width * hc_dtype_size(x->dtype) && out->strides[2] == s->width * size));
    if (p->joined) {
        p->axis[1].size = p->axis[1].answers = s->height * s->width;
        p->axis[0].size = p->axis[0].answers = 1;
    }
    p->follow = out->strides[2] == s->out_width * size;
    p->in_place = p->joined && x->dtype == HC_F32 && (uintptr_t)x->data % sizeof(float) == 0 && whole(x->strides[0]) &&
                  whole(x->strides[1]) &&
                  (s->filters / window->groups <= FEW_FILTERS || spread(x->strides[1], s->group_channels));
    const int64_t fit = BAND_BYTES / size;
    int64_t rows = p->axis[0].answers, columns = p->axis[1].answers;
    set_band(p, rows, columns);
    while (p->copied > fit && rows > 1) {
        rows = even(p->axis[0].answers, (rows * fit / p->copied) < rows ? rows * fit / p->copied : rows - 1);
        set_band(p, rows, columns);
    }
    const int64_t tile = 3 * lanes;
    while (p->copied > fit && columns > tile) {
        columns = hc_max(tile, hc_min(columns - 1, columns * fit / p->copied) / tile * tile);
        set_band(p, rows, columns);
    }
    if (p->in_place) {
        p->plane = x->strides[1] / size;
        p->copied = 0;
    }
}

void hc_planes_taps(const hc_planes *p, int64_t *tap) {
    const hc_planes_axis *down = &p->axis[0], *across = &p->axis[1];
    for (int64_t r = 0; r < down->taps; r++)
        for (int64_t s = 0; s < across->taps; s++) {
            const int64_t h = r * down->dilation, w = s * across->dilation;
            const int64_t phase = h % down->stride * across->phases + w % across->stride;
            *tap++ = (phase * down->of_phase + h / down->stride) * across->of_phase + w / across->stride;
        }
}

int64_t hc_planes_bands(const hc_planes *p) {
    return p->conv->shape.n * p->conv->window->groups * p->axis[0].bands * p->axis[1].bands;
}

void hc_planes_count(const hc_planes *p, hc_planes_band *band) {
    const int64_t by_rows = band->n[0] * hc_ceil_div(band->n[1], p->lanes);
    const int64_t by_all = hc_ceil_div((band->n[0] - 1) * p->axis[1].of_phase + band->n[1], p->lanes);
    if (p->follow && band->n[1] == p->axis[1].of_phase) { /* rows of pixels and of outputs are one row */
        band->n[1] *= band->n[0];
        band->n[0] = 1;
        band->wide = false;
        band->per_row = band->blocks = by_all;
        return;
    }
    band->wide = by_all < by_rows;
    band->per_row = band->wide ? by_all : hc_ceil_div(band->n[1], p->lanes);
    band->blocks = band->wide ? by_all : by_rows;
}

int64_t hc_planes_blocks(const hc_planes *p) {
    int64_t sum = 0;
    for (int64_t row = 0; row < p->axis[0].answers; row += p->axis[0].at_once) {
        hc_planes_band band = {.n = {hc_min(p->axis[0].at_once, p->axis[0].answers - row), p->axis[1].at_once}};
        const int64_t rows = band.n[0];
        hc_planes_count(p, &band);
        sum += band.blocks * (p->axis[1].bands - 1);
        band.n[0] = rows;
        band.n[1] = p->axis[1].answers - (p->axis[1].bands - 1) * p->axis[1].at_once;
        hc_planes_count(p, &band);
        sum += band.blocks;
    }
    return sum * p->conv->shape.n * p->conv->window->groups;
}

/* One row of pixels of a phase, n of them, the first at column `first` of the image. */
static void copy_row(const hc_view *x, const char *row, int64_t width, int64_t first, int64_t step, int64_t n,
                     float *to) {
    const int64_t begin = first < 0 ? hc_min(n, (-first + step - 1) / step) : 0;
    const int64_t end = hc_max(begin, hc_min(n, width > first ? (width - first + step - 1) / step : 0));
    const int64_t size = hc_dtype_size(x->dtype);
    const char *from = row + (first + begin * step) * size;
    for (int64_t i = 0; i < begin; i++)
        to[i] = 0;
    if (x->dtype == HC_F32 && step == 1) {
        memcpy(to + begin, from, (size_t)((end - begin) * size));
    } else if (x->dtype == HC_F32 && step == 2 && (uintptr_t)from % sizeof(float) == 0) {
        const float *values = (const float *)(const void *)from;
        for (int64_t i = 0; i < end - begin; i++)
            to[begin + i] = values[2 * i];
    } else if (end > begin) {
        hc_read_floats(from, x->dtype, step * size, end - begin, to + begin);
    }
    for (int64_t i = end; i < n; i++)
        to[i] = 0;
}

static void copy_band(const hc_planes *p, const hc_planes_band *band, float *to) {
    const hc_view *x = p->conv->x;
    const hc_planes_axis *down = &p->axis[0], *across = &p->axis[1];
    const int64_t rows = band->n[0] + down->of_phase - down->at_once;
    const int64_t columns = band->n[1] + across->of_phase - across->at_once;
    const char *image = (const char *)x->data + band->image * x->strides[0] + band->group * p->channels * x->strides[1];
    for (int64_t c = 0; c < p->channels; c++, image += x->strides[1])
        for (int64_t a = 0; a < down->phases; a++)
            for (int64_t i = 0; i < rows; i++) {
                const int64_t h = (band->first[0] + i) * down->stride + a - down->before;
                const bool inside = h >= 0 && h < down->size;
                for (int64_t b = 0; b < across->phases; b++)
                    copy_row(x, inside ? image + h * x->strides[2] : image, inside ? across->size : 0,
                             inside ? band->first[1] * across->stride + b - across->before : 0, across->stride, columns,
                             to + c * p->plane + ((a * across->phases + b) * down->of_phase + i) * across->of_phase);
            }
    memset(to + p->channels * p->plane, 0, (size_t)(p->copied - p->channels * p->plane) * sizeof *to);
}

hc_planes_band hc_planes_at(const hc_planes *p, int64_t number) {
    hc_planes_band band = {0};
    for (int i = 1; i >= 0; i--) {
        band.first[i] = number % p->axis[i].bands * p->axis[i].at_once;
        band.n[i] = hc_min(p->axis[i].at_once, p->axis[i].answers - band.first[i]);
        number /= p->axis[i].bands;
    }
    band.group = number % p->conv->window->groups;
    band.image = number / p->conv->window->groups;
    return band;
}

hc_planes_band hc_planes_read(const hc_planes *p, int64_t number, float *memory) {
    const hc_view *x = p->conv->x;
    hc_planes_band band = hc_planes_at(p, number);
    band.x = memory;
    if (p->in_place)
        band.x = (const float *)(const void *)((const char *)x->data + band.image * x->strides[0] +
                                               band.group * p->channels * x->strides[1]) +
                 band.first[1];
    else
        copy_band(p, &band, memory);
    hc_planes_count(p, &band);
    return band;
}
