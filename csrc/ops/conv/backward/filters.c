/* Gradients of filters: for each filter and tap one fmaf chain over output pixels p, q and images n, as the definition
 * says (heterocompute/reference/loops.py). Filters are in lanes. With many filters per group, all lanes have the same
 * pixel, which is broadcast; with few, lane j has the pixel of the channel that filter j reads.
 *
 *   task    a chunk of filters and a part of the channels of a group; its sums stay in `sums`, (channel, tap, filter)
 *   band    some rows of outputs, or some columns of one row: gradients are copied as (p, q, n, filter), and the pixels
 *           that they meet as (channel, row, column, n), with their padding, of as many channels as fit. Gradients with
 *           adjacent filters, and pixels of 1 x 1 filters, are read where they lie
 *
 * Memory: for each thread a band of gradients and of pixels and the sums, less than 1 MiB unless one window of all
 * images, or the taps of one channel, take more.
 */
#include "base/threads.h"
#include "kernels/kernel.h"
#include "ops/check.h"

#include <string.h>

/* Lanes of a chunk of several groups; floats of pixels and of sums of a task, in L2; of gradients of a band. */
enum {
    FEW = 16,
    BESIDE = 64 /* lanes of chunks of filters of one channel, if channels are adjacent */,
    FEW_TAPS = 9,
    MOST_LANES = 512 /* that share pixels */,
    BROADCAST = 8 /* filters per group */,
    PIXELS = 16 << 10,
    SUMS = 64 << 10,
    GRADIENTS = 48 << 10,
    SHARED_PIXELS = 160 /* of gradients that several channels read, if they have more than HC_GRADIENT_WIDE lanes */,
    SHARED_GRADIENTS = 40 << 10,
    BAND = 64 << 10,  /* floats of pixels of a band, at most, of one channel */
    WINDOW = 4 * BAND /* of BESIDE channels in one window of all images */
};

typedef struct {
    const hc_view *dy, *x, *dw;
    const hc_window *window;
    hc_gradient_f32_fn *kernel;
    hc_pack_x32_fn *transpose;
    int64_t n, height, width, down, across; /* images, pixels of x, outputs */
    int64_t filters, depth, r, s, each;     /* each: filters per group */
    bool one;
    bool gradients_in_place, pixels_in_place;
    bool beside; /* pixels of 1 x 1 filters are copied as (pixel, n, channel) */
    int n_threads;
    int64_t lanes, x_lanes;      /* of a chunk, and of a pixel */
    int64_t chunks, parts, part; /* chunks of filters, parts of a group's channels, channels of a part */
    int64_t rows, columns;       /* of outputs in a band */
    int64_t x_rows, x_columns;   /* of pixels that a band meets */
    int64_t plane, together;     /* floats of a channel, channels at once */
    int64_t taps_at, sums_at, x_at, dy_at, thread_bytes;
    uint8_t *memory;
} gradient_job;

/* Filters [filter, filter + count), of which the first `known` belong to another part, too, and are not stored; channels
 * [channel, channel + channels) of their groups. */
typedef struct {
    int64_t filter, count, known, channel, channels;
} gradient_part;

/* Outputs of a band. */
typedef struct {
    int64_t p, q, rows, columns;
} gradient_band;

static char *at(const hc_view *view, int64_t a, int64_t b, int64_t c, int64_t d) {
    return (char *)view->data + a * view->strides[0] + b * view->strides[1] + c * view->strides[2] +
           d * view->strides[3];
}

/* to[i * to_step] = value i of n floats, `step` bytes apart. */
static void copy_apart(const char *from, int64_t step, int64_t n, float *to, int64_t to_step) {
    for (int64_t i = 0; i < n; i++)
        memcpy(to + i * to_step, from + i * step, sizeof *to);
}

/* The same to `times` adjacent places. */
static void copy_often(const char *from, int64_t step, int64_t n, int64_t times, float *to, int64_t to_step) {
    enum { FOUR = 4 };
    for (int64_t i = 0; i < n; i++, to += to_step, from += step) {
        float value;
        memcpy(&value, from, sizeof value);
        if (times == FOUR) { /* a constant number */
            for (int j = 0; j < FOUR; j++)
                to[j] = value;
            continue;
        }
        for (int64_t j = 0; j < times; j++)
            to[j] = value;
    }
}

/* to[i * to_step + j] = value i of row j, rows `row` bytes and values `step` bytes apart. */
static void copy_lanes(const gradient_job *job, const char *from, int64_t row, int64_t rows, int64_t step, int64_t n,
                       float *to, int64_t to_step) {
    enum { ROWS = 16, AHEAD = 8 };
    if (step == sizeof(float) && to_step <= INT32_MAX / (int64_t)sizeof(float)) {
        for (int64_t j = 0; j < rows; j += ROWS)
            job->transpose(from + j * row, row, (int)hc_min(ROWS, rows - j), n, to + j, (int)to_step, 0);
        return;
    }
    for (int64_t i = 0; i < n; i++) {
        for (int64_t j = 0; j < rows && row == sizeof(float); j += HC_CACHE_LINE / (int64_t)sizeof *to)
            __builtin_prefetch(from + (i + AHEAD) * step + j * row, 0, 2);
        if (row == sizeof(float) && rows == ROWS) /* a constant size */
            memcpy(to + i * to_step, from + i * step, ROWS * sizeof *to);
        else if (row == sizeof(float))
            memcpy(to + i * to_step, from + i * step, (size_t)rows * sizeof *to);
        else
            copy_apart(from + i * step, row, rows, to + i * to_step, 1);
    }
}

/* Prefetches `planes` planes of values from `from` on, if they are contiguous: hardware does not detect 16 short streams. */
static void fetch_planes(const char *from, const int64_t *strides, int64_t planes, int64_t height, int64_t width) {
    if (strides[3] != sizeof(float) || strides[2] != width * strides[3] || strides[1] != height * strides[2])
        return;
    for (int64_t i = 0; i < planes * strides[1]; i += HC_CACHE_LINE)
        __builtin_prefetch(from + i, 0, 2);
}

static void copy_gradients(const gradient_job *job, const gradient_part *part, const gradient_band *band, float *to) {
    const int64_t pixel = job->n * job->lanes, *strides = job->dy->strides;
    const bool whole = band->columns == job->across && strides[2] == job->across * strides[3];
    const int64_t lines = whole ? 1 : band->rows, n_values = whole ? band->rows * band->columns : band->columns;
    for (int64_t n = 0; n < job->n; n++) {
        if (n + 1 < job->n && band->rows == job->down)
            fetch_planes(at(job->dy, n + 1, part->filter, 0, 0), strides, part->count, job->down, job->across);
        for (int64_t p = 0; p < lines; p++)
            copy_lanes(job, at(job->dy, n, part->filter, band->p + p, band->q), strides[1], part->count, strides[3],
                       n_values, to + p * band->columns * pixel + n * job->lanes, pixel);
    }
}

/* Pixels [first, first + n) of a row of an image. */
static void copy_row(const gradient_job *job, const gradient_part *part, int64_t image, int64_t channel,
                     int64_t channels, int64_t row, int64_t first, int64_t n, float *to) {
    const hc_view *x = job->x;
    const int64_t step = job->n * job->x_lanes;
    if (!job->one) {
        const int64_t group = part->filter / job->each;
        if (job->each == 1) {
            copy_lanes(job, at(x, image, group * job->depth + channel, row, first), job->depth * x->strides[1],
                       part->count, x->strides[3], n, to, step);
            return;
        }
        for (int64_t j = 0; j < part->count; j += job->each - (part->filter + j) % job->each) /* a group at a time */
            copy_often(at(x, image, (part->filter + j) / job->each * job->depth + channel, row, first), x->strides[3],
                       n, hc_min(job->each - (part->filter + j) % job->each, part->count - j), to + j, step);
        return;
    }
    const int64_t c = part->filter / job->each * job->depth + channel;
    for (int64_t v = 0; v < channels; v++) {
        const char *from = at(x, image, c + v, row, first);
        if (step == 1 && x->strides[3] == sizeof(float))
            memcpy(to + v * job->plane, from, (size_t)n * sizeof *to);
        else
            copy_apart(from, x->strides[3], n, to + v * job->plane, step);
    }
}

/* The same of all images with one pixel for all lanes; false if values are not adjacent along an axis that helps. */
static bool transpose_row(const gradient_job *job, const gradient_part *part, int64_t channel, int64_t channels,
                          int64_t row, int64_t first, int64_t n, float *to) {
    enum { TOGETHER = 16 };
    const hc_view *x = job->x;
    const int64_t c = part->filter / job->each * job->depth + channel, size = sizeof(float);
    if (!job->one || job->plane > INT32_MAX / size)
        return false;
    if (x->strides[3] == size && job->n > 1) { /* images beside each other */
        for (int64_t v = 0; v < channels; v++)
            for (int64_t i = 0; i < job->n; i += TOGETHER)
                job->transpose(at(x, i, c + v, row, first), x->strides[0], (int)hc_min(TOGETHER, job->n - i), n,
                               to + v * job->plane + i, (int)job->n, 0);
        return true;
    }
    if (x->strides[1] != size || x->strides[3] == size || channels == 1)
        return false;
    for (int64_t k = 0; k < n; k += job->n == 1 ? TOGETHER : 1) /* channels to planes, of some pixels or images */
        for (int64_t i = 0; i < job->n; i += TOGETHER) {
            const int64_t step = x->strides[job->n == 1 ? 3 : 0], some = job->n == 1 ? n - k : job->n - i;
            job->transpose(at(x, i, c, row, first + k), step, (int)hc_min(TOGETHER, some), channels,
                           to + k * job->n + i, (int)job->plane, 0);
        }
    return true;
}

/* All pixels of a band as (pixel, n, channel), `together` channels apart. */
static void copy_beside(const gradient_job *job, const gradient_part *part, const gradient_band *band, int64_t channel,
                        int64_t channels, float *to) {
    const int64_t *steps = job->x->strides, first = part->filter / job->each * job->depth + channel;
    for (int64_t n = 0; n < job->n; n++)
        copy_lanes(job, at(job->x, n, first, 0, band->q), steps[1], channels, steps[3], band->columns,
                   to + n * job->together, job->n * job->together);
}

static void copy_pixels(const gradient_job *job, const gradient_part *part, const gradient_band *band, int64_t channel,
                        int64_t channels, float *to) {
    const hc_window *window = job->window;
    const int64_t pixel = job->n * job->x_lanes;
    const int64_t top = band->p * window->stride[0] - window->pad_before[0];
    const int64_t left = band->q * window->stride[1] - window->pad_before[1];
    const int64_t rows = (band->rows - 1) * window->stride[0] + (job->r - 1) * window->dilation[0] + 1;
    const int64_t begin = hc_min(hc_max(0, -left), job->x_columns);
    const int64_t end = hc_max(begin, hc_min(job->x_columns, job->width - left));
    for (int64_t i = 0; i < rows; i++) {
        float *line = to + i * job->x_columns * pixel;
        const bool inside = top + i >= 0 && top + i < job->height && end > begin;
        for (int64_t v = 0; v < channels; v++) {
            float *zeros = line + v * job->plane;
            memset(zeros, 0, (size_t)((inside ? begin : job->x_columns) * pixel) * sizeof *to);
            if (inside)
                memset(zeros + end * pixel, 0, (size_t)((job->x_columns - end) * pixel) * sizeof *to);
        }
        float *place = line + begin * pixel;
        if (inside && job->one &&
            !transpose_row(job, part, channel, channels, top + i, left + begin, end - begin, place))
            for (int64_t n = 0; n < job->n; n++)
                copy_row(job, part, n, channel, channels, top + i, left + begin, end - begin, place + n * job->x_lanes);
    }
    const int64_t first = hc_max(0, -top), last = hc_min(rows, job->height - top);
    for (int64_t n = 0; n < job->n && !job->one && end > begin; n++) {
        if (n + 1 < job->n && rows >= job->height && job->each == 1 && job->depth == 1)
            fetch_planes(at(job->x, n + 1, part->filter, 0, 0), job->x->strides, part->count, job->height, job->width);
        for (int64_t i = first; i < last; i++)
            copy_row(job, part, n, channel, channels, top + i, left + begin, end - begin,
                     to + (i * job->x_columns + begin) * pixel + n * job->x_lanes);
    }
}

/* Sums are (channel, tap, filter), dw has filters first. */
static void store(const gradient_job *job, const gradient_part *part, const float *sums) {
    enum { TOGETHER = 16 };
    const hc_view *dw = job->dw;
    const int64_t taps = job->r * job->s, size = sizeof(float), count = part->channels * taps;
    const bool adjacent = (dw->strides[3] == size || job->s == 1) && (dw->strides[2] == job->s * size || job->r == 1) &&
                          dw->strides[1] == taps * size && dw->strides[0] % size == 0 && dw->strides[0] > 0 &&
                          dw->strides[0] <= INT32_MAX;
    float *to = (float *)(void *)at(dw, part->filter + part->known, part->channel, 0, 0);
    const int64_t stored = part->count - part->known;
    sums += part->known;
    for (int64_t i = 0; i < count && adjacent; i += TOGETHER)
        job->transpose(sums + i * job->lanes, job->lanes * size, (int)hc_min(TOGETHER, count - i), stored, to + i,
                       (int)(dw->strides[0] / size), 0);
    for (int64_t i = 0; i < count && !adjacent; i++, sums += job->lanes)
        for (int64_t j = 0; j < stored; j++)
            memcpy(at(dw, part->filter + part->known + j, part->channel + i / taps, i % taps / job->s, i % job->s),
                   sums + j, sizeof *sums);
}

/* Where the kernel reads gradients and pixels: in place, or copies of the band. */
static void set_steps(const gradient_job *job, const gradient_part *part, const gradient_band *band, uint8_t *own,
                      hc_gradient *g) {
    const hc_window *window = job->window;
    const int64_t *dy = job->dy->strides, *x = job->x->strides, size = sizeof(float);
    const int64_t taken = job->n * job->lanes, pixel = job->n * job->x_lanes;
    const bool dy_stays = job->gradients_in_place && part->count == job->lanes;
    g->dy = dy_stays ? (const float *)(const void *)at(job->dy, 0, part->filter, band->p, band->q)
                     : (const float *)(const void *)(own + job->dy_at);
    g->dy_row = dy_stays ? dy[2] / size : band->columns * taken;
    g->dy_column = dy_stays ? dy[3] / size : taken;
    g->dy_step = dy_stays ? dy[0] / size : job->lanes;
    g->x = (const float *)(const void *)(own + job->x_at);
    g->x_row = window->stride[0] * job->x_columns * pixel;
    g->x_column = window->stride[1] * pixel;
    g->x_step = job->x_lanes;
    if (job->pixels_in_place) {
        const int64_t channel = part->filter / job->each * job->depth + part->channel;
        g->x = (const float *)(const void *)at(job->x, 0, channel, band->p * window->stride[0],
                                               band->q * window->stride[1]);
        g->x_row = window->stride[0] * x[2] / size;
        g->x_column = window->stride[1] * x[3] / size;
        g->x_step = x[0] / size;
    }
    if (job->beside) {
        g->x_column = job->n * job->together;
        g->x_step = job->together;
    }
    if (!dy_stays)
        copy_gradients(job, part, band, (float *)(void *)(own + job->dy_at));
    g->down = band->rows;
    g->across = band->columns;
    g->n = job->n;
    if (job->n == 1) { /* columns, evenly apart, are the inner loop */
        g->x_step = g->x_column;
        g->dy_step = g->dy_column;
    }
    const bool flat = job->n == 1 || (g->x_column == job->n * g->x_step && g->dy_column == job->n * g->dy_step);
    if (flat) {
        g->n *= g->across;
        g->across = 1;
    }
}

static void add_band(const gradient_job *job, const gradient_part *part, const gradient_band *band, uint8_t *own) {
    const int64_t count = job->r * job->s;
    float *sums = (float *)(void *)(own + job->sums_at), *x = (float *)(void *)(own + job->x_at);
    hc_gradient g = {.tap = (const int64_t *)(const void *)(own + job->taps_at), .width = job->lanes, .one = job->one};
    set_steps(job, part, band, own, &g);
    for (int64_t v = 0; v < part->channels; v += job->together) {
        const int64_t channels = hc_min(job->together, part->channels - v);
        if (job->beside)
            copy_beside(job, part, band, part->channel + v, channels, x);
        else if (job->pixels_in_place)
            g.x += v ? job->together * job->x->strides[1] / (int64_t)sizeof(float) : 0;
        else
            copy_pixels(job, part, band, part->channel + v, channels, x);
        g.taps = channels * count;
        g.c = sums + v * count * job->lanes;
        job->kernel(&g);
    }
}

static void gradient_task(void *context, int64_t task, int thread) {
    const gradient_job *job = context;
    uint8_t *own = job->memory + thread * job->thread_bytes;
    const int64_t chunk = task / job->parts, channel = task % job->parts * job->part;
    const int64_t per_group = hc_ceil_div(job->each, job->lanes);
    gradient_part part = {.channel = channel, .channels = hc_min(job->part, job->depth - channel)};
    if (job->one) {
        const int64_t within = chunk % per_group * job->lanes;
        part.filter = chunk / per_group * job->each + within;
        part.count = hc_min(job->lanes, job->each - within);
    } else {
        part.filter = chunk * job->lanes;
        part.count = hc_min(job->lanes, job->filters - part.filter);
    }
    if (job->gradients_in_place && part.count < job->lanes && (job->one ? job->each : job->filters) >= job->lanes) {
        part.known = job->lanes - part.count; /* all lanes have filters, some of which the part before stores */
        part.filter -= part.known;
        part.count = job->lanes;
    }
    float *sums = (float *)(void *)(own + job->sums_at);
    memset(sums, 0, (size_t)(part.channels * job->r * job->s * job->lanes) * sizeof *sums);
    if (part.count < job->lanes) /* other lanes are computed and not stored */
        memset(own + job->x_at, 0, (size_t)(job->thread_bytes - job->x_at));
    int64_t *taps = (int64_t *)(void *)(own + job->taps_at);
    const int64_t pixel = job->n * job->x_lanes;
    const int64_t channel_step = job->beside            ? 1
                                 : job->pixels_in_place ? job->x->strides[1] / (int64_t)sizeof(float)
                                                        : job->plane;
    for (int64_t v = 0; v < job->together; v++)
        for (int64_t r = 0; r < job->r; r++)
            for (int64_t s = 0; s < job->s; s++)
                *taps++ = v * channel_step +
                          (r * job->window->dilation[0] * job->x_columns + s * job->window->dilation[1]) * pixel;
    for (int64_t p = 0; p < job->down; p += job->rows)
        for (int64_t q = 0; q < job->across; q += job->columns) {
            const gradient_band band = {p, q, hc_min(job->rows, job->down - p), hc_min(job->columns, job->across - q)};
            add_band(job, &part, &band, own);
        }
    store(job, &part, sums);
}

/* How many windows, at least 1, `size` pixels have. */
static int64_t fitting(int64_t size, int64_t reach, int64_t stride) {
    return size <= reach ? 1 : (size - reach) / stride + 1;
}

/* The address and all steps are multiples of a number of bytes. */
static bool is_aligned(const hc_view *view, int64_t bytes) {
    int64_t steps = (intptr_t)view->data;
    for (int i = 0; i < view->ndim; i++)
        steps |= view->strides[i];
    return steps % bytes == 0;
}

/* Vectors of 8 filters do not cross lines. */
static bool is_aligned_pixels(const hc_view *dy) {
    hc_view pixels = *dy;
    pixels.strides[1] = 0;
    return is_aligned(&pixels, 8 * sizeof(float));
}

/* Finds what is read in place. Planes that are multiples of 4 KiB apart would share the same few lines of L1. */
static void find_places(gradient_job *job) {
    enum { PAGE = 4096, NEAR = 512 << 10 };
    const hc_window *window = job->window;
    const int64_t *x = job->x->strides, *dy = job->dy->strides, size = sizeof(float);
    const bool is_single = job->r == 1 && job->s == 1 && window->pad_before[0] == 0 && window->pad_before[1] == 0 &&
                           (job->down - 1) * window->stride[0] < job->height &&
                           (job->across - 1) * window->stride[1] < job->width;
    /* from memory, copies that prefetch take less time than a few values of each pixel */
    const bool is_near = job->n * job->filters * job->down * job->across <= NEAR;
    job->gradients_in_place = (job->one || is_near) && dy[1] == size && is_aligned_pixels(job->dy);
    job->pixels_in_place =
        job->one && is_single && is_aligned(job->x, size) && (x[1] == size || (job->n == 1 && x[1] % PAGE != 0));
    if (is_single && window->stride[0] == 1 && window->stride[1] == 1 && x[2] == job->width * x[3] &&
        dy[2] == job->across * dy[3] && job->across == job->width && job->down == job->height) {
        job->width = job->across = job->width * job->height; /* a plane is a row */
        job->height = job->down = 1;
        job->beside = job->one && !job->pixels_in_place;
    }
}

/* Channels whose sums fit next to those of this many lanes. */
static int64_t channels_of(const gradient_job *job, int64_t lanes) {
    return hc_min(job->depth, hc_max(1, SUMS / (job->r * job->s * lanes)));
}

/* Lanes of chunks of filters that share pixels. A chunk reads all pixels, and each of its parts all gradients: the number
 * of chunks with the fewest values, as long as there are tasks for all threads. */
static int64_t broadcast_lanes(const gradient_job *job) {
    const double gradients = (double)(job->each * job->down * job->across);
    const double pixels = (double)(job->depth * job->height * job->width);
    const int64_t groups = job->filters / job->each;
    /* gradients of one pixel of all images, and the sums of one channel, stay in L2 */
    const int64_t fit = hc_min(SHARED_GRADIENTS / hc_max(1, job->n), SUMS / (job->r * job->s));
    const int64_t most = hc_max(HC_GRADIENT_WIDE, hc_min(MOST_LANES, fit));
    int64_t found = FEW;
    double least = -1;
    for (int64_t chunks = hc_ceil_div(job->each, most); chunks <= hc_ceil_div(job->each, HC_GRADIENT_WIDE); chunks++) {
        const int64_t lanes = hc_round_up(hc_ceil_div(job->each, chunks), FEW);
        const int64_t parts = hc_ceil_div(job->depth, channels_of(job, lanes));
        const double values = gradients * (double)parts + pixels * (double)chunks;
        const bool fills = chunks * parts * groups >= job->n_threads;
        if (least < 0 || (fills && values < least)) {
            found = lanes;
            least = fills ? values : gradients * (double)job->depth + pixels * (double)job->each; /* more than any */
        }
    }
    return found;
}

/* Sizes of bands, parts and memory. */
static void divide(gradient_job *job) {
    const hc_window *window = job->window;
    const int64_t size = sizeof(float), taps = job->r * job->s;
    job->one = job->each >= BROADCAST || job->filters == job->each;
    find_places(job);
    const int64_t reach[] = {(job->r - 1) * window->dilation[0] + 1, (job->s - 1) * window->dilation[1] + 1};
    /* windows of many pixels are faster with few lanes: Zen 4, 2026-11 */
    const bool beside = job->each == 1 && job->x->strides[1] == size && (taps <= FEW_TAPS || job->n == 1) &&
                        job->filters >= BESIDE * job->n_threads &&
                        job->n <= hc_min(GRADIENTS, WINDOW / reach[0] / reach[1]) / BESIDE;
    job->lanes = job->one ? broadcast_lanes(job) : beside ? BESIDE : FEW;
    job->x_lanes = job->one ? 1 : job->lanes;
    job->chunks = job->one ? job->filters / job->each * hc_ceil_div(job->each, job->lanes)
                           : hc_ceil_div(job->filters, job->lanes);
    job->part = channels_of(job, job->lanes);
    job->parts = hc_ceil_div(job->depth, job->part);
    const int64_t row = hc_max(1, job->across * job->n * job->lanes);
    const int64_t pixels = job->lanes > HC_GRADIENT_WIDE ? SHARED_PIXELS : SHARED_GRADIENTS;
    const int64_t limit = job->one ? hc_min(pixels * job->lanes, SHARED_GRADIENTS) : GRADIENTS;
    const int64_t pixel = hc_max(1, job->n * job->x_lanes);
    job->columns = hc_min(job->across, row <= limit ? job->across : hc_max(1, limit / (job->n * job->lanes)));
    job->columns = hc_min(job->columns, fitting(BAND / pixel / reach[0], reach[1], window->stride[1]));
    job->x_columns = (job->columns - 1) * window->stride[1] + reach[1];
    const int64_t rows = hc_min(job->columns < job->across ? 1 : job->down, hc_max(1, limit / row));
    job->rows = hc_min(rows, fitting(BAND / pixel / hc_max(1, job->x_columns), reach[0], window->stride[0]));
    job->x_rows = (job->rows - 1) * window->stride[0] + reach[0];
    job->plane = hc_max(1, job->x_rows * job->x_columns * job->n * job->x_lanes);
    job->together = job->one ? hc_min(job->part, hc_max(1, PIXELS / job->plane)) : 1;
    if (job->pixels_in_place || job->beside)
        job->together =
            job->pixels_in_place ? job->part : hc_min(job->part, hc_max(1, PIXELS / hc_max(1, job->columns * job->n)));
    if (job->pixels_in_place)
        job->plane = 0;
    job->sums_at = hc_round_up(job->together * taps * (int64_t)sizeof(int64_t), HC_CACHE_LINE);
    job->x_at = job->sums_at + hc_round_up(job->part * taps * job->lanes * size, HC_CACHE_LINE);
    job->dy_at = job->x_at + hc_round_up(job->together * job->plane * size, HC_CACHE_LINE);
    job->thread_bytes = job->dy_at + job->rows * job->columns * job->n * job->lanes * size;
    job->thread_bytes = hc_round_up(job->thread_bytes, HC_CACHE_LINE);
}

static hc_status check(const hc_view *dy, const hc_view *x, const hc_window *window, const hc_view *dw,
                       hc_error *error) {
    const hc_view *const all[] = {dy, x, dw};
    const char *const names[] = {"dy", "x", "dw"};
    for (int i = 0; i < 3; i++) {
        const hc_status status = hc_check_view(names[i], all[i], error);
        if (status != HC_OK)
            return status;
        if (all[i]->dtype != HC_F32 || all[i]->ndim != 4)
            return hc_fail(error, HC_VALUE, "conv2d_gradient: %s is not float32 with four dimensions", names[i]);
    }
    const int64_t groups = window->groups;
    if (groups < 1 || dy->shape[0] != x->shape[0] || dy->shape[1] != dw->shape[0] || dw->shape[0] % groups ||
        dw->shape[1] * groups != x->shape[1])
        return hc_fail(error, HC_VALUE, "conv2d_gradient: shapes that do not fit");
    return HC_OK;
}

hc_status hc_conv2d_gradient(const hc_run *run, const hc_view *dy, const hc_view *x, const hc_window *window,
                             const hc_view *dw, hc_error *error) {
    const hc_status status = check(dy, x, window, dw, error);
    if (status != HC_OK || hc_values(dw) == 0)
        return status;
    gradient_job job = {.dy = dy,
                        .x = x,
                        .dw = dw,
                        .window = window,
                        .kernel = HC_PICK(gradient_f32, run),
                        .transpose = HC_PICK(pack_x32, run),
                        .n = x->shape[0],
                        .height = x->shape[2],
                        .width = x->shape[3],
                        .down = dy->shape[2],
                        .across = dy->shape[3],
                        .filters = dw->shape[0],
                        .depth = dw->shape[1],
                        .r = dw->shape[2],
                        .s = dw->shape[3],
                        .each = dw->shape[0] / window->groups,
                        .n_threads = run->n_threads};
    divide(&job);
    const int64_t tasks = job.chunks * job.parts;
    const int n_threads = (int)hc_min(run->n_threads, tasks);
    job.memory = hc_alloc_aligned(n_threads * job.thread_bytes);
    if (!job.memory)
        return hc_fail(error, HC_MEMORY, "conv2d_gradient: not enough memory");
    hc_parallel(n_threads, tasks, gradient_task, &job);
    hc_free_aligned(job.memory);
    return HC_OK;
}
