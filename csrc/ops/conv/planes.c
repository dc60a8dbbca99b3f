/* Convolution of images whose planes lie one after the other (NCHW): pixels in lanes, as many registers of them as leave
 * room for their sums, times filters whose values are broadcast. One fmaf chain over (r, s, c) per output, with the bits
 * of `direct`. Neither pixels nor outputs are transposed, and most filters of 1 x 1 are read as they lie. A task is a
 * band of outputs (planes.h) and some filters of a group.
 *
 * Memory: all other filters of several channels as rows (r, s, c), at most MOST_BYTES; per thread a band of at
 * most BAND_BYTES or, if one register of pixels needs more, that, and a tile of outputs.
 */
#include "ops/conv/planes.h"

#include "base/threads.h"
#include "ops/conv/filters.h"
#include "ops/conv/prepacked.h"
#include "ops/conv/windows.h"

#include <string.h>

enum {
    MOST_BYTES = 12 << 20,  /* of filters, as of panels of `direct`, and of the smallest band */
    BAND_BYTES = 256 << 10, /* stays in L2 with as many bytes of filters */
    BLOCKS = 24,            /* registers of pixels of a call */
    FAR_BYTES = 36 << 20,   /* of results that leave an L3 of 32 MiB */
    FEW_PRODUCTS = 16,      /* of a result, which take less time than its way from memory */
    PART = 48,              /* filters of a tile of outputs that are stored by rows */
    FEW_FILTERS = 12,       /* of a call, at least */
    FEW_CHANNELS = 8,       /* of filters that are read in place: several taps are in a cache line */
    FAR_CHANNELS = 256,     /* each in its own cache line: more leave L1 before the next filters read them */
    TOGETHER = 16,          /* filters that are packed together */
};

typedef struct {
    const hc_convolution *conv;
    const hc_kernel *kernel;
    /* one channel and a filter of 3, 5 or 7 a side: outputs of some planes, or of rows of one, are computed by hc_plane_f32 */
    hc_plane_f32_fn *each;
    hc_plane_tasks tasks;
    hc_planes planes;
    int64_t filters, columns; /* of a group */
    int64_t parts;            /* tasks of a band, each some of its filters */
    int64_t at_once;          /* filters that stay in L2 */
    bool packed, far;
    int64_t w_step[3]; /* floats from a filter, a tap and a channel to the next */
    const float *w;
    float *packed_filters, *bias;
    uint8_t *private_memory;
    int64_t private_bytes, tile_at;
} hc_planes_job;

static bool whole(int64_t bytes) { return bytes % (int64_t)sizeof(float) == 0; }

/* True if filters are read in place: each has its taps one after the other. */
static bool filters_lie(const hc_convolution *conv) {
    const hc_view *w = conv->w->dense;
    const hc_conv_shape *s = &conv->shape;
    if (!w || w->dtype != HC_F32 || (uintptr_t)w->data % sizeof(float) || !whole(w->strides[0]) ||
        !whole(w->strides[1]) || !whole(w->strides[2]) || !whole(w->strides[3]))
        return false;
    if (s->r * s->s == 1)
        return s->group_channels <= FAR_CHANNELS || w->strides[0] != (int64_t)sizeof(float) ||
               w->strides[1] == (int64_t)sizeof(float);
    return (s->group_channels < FEW_CHANNELS && (s->r == 1 || s->s == 1 || w->strides[2] == s->s * w->strides[3]) &&
            (s->group_channels > 1 || s->s == 1 || w->strides[3] == (int64_t)sizeof(float)));
}

hc_plane hc_plane_of(const hc_convolution *conv, int64_t row, int64_t down) {
    const hc_conv_shape *s = &conv->shape;
    const hc_window *window = conv->window;
    return (hc_plane){.row_step = conv->x->strides[2] / (int64_t)sizeof(float),
                      .rows = s->height,
                      .columns = s->width,
                      .top = window->pad_before[0] - row * window->stride[0],
                      .left = window->pad_before[1],
                      .c_row = conv->out->strides[2] / (int64_t)sizeof(float),
                      .down = down,
                      .across = s->out_width,
                      .side = (int)s->r,
                      .stride = (int)window->stride[0],
                      .relu = conv->relu};
}

static int64_t plane_work(const hc_convolution *conv, int64_t down) {
    const hc_plane plane = hc_plane_of(conv, 0, down);
    return hc_plane_work(&plane, plane.side, plane.stride);
}

int64_t hc_plane_rows(const hc_convolution *conv, int64_t row, int64_t down, int64_t *n) {
    const hc_window *window = conv->window;
    const int64_t begin = row * window->stride[0] - window->pad_before[0];
    const int64_t first = hc_max(0, hc_min(begin, conv->shape.height));
    *n = hc_max(0, hc_min(begin + (down - 1) * window->stride[0] + conv->shape.r, conv->shape.height) - first);
    return first;
}

bool hc_plane_plan(const hc_convolution *conv, bool converts, hc_plane_tasks *tasks) {
    enum { FLOATS = 9 << 10, MOST = 1 << 19, DOWN = 8, TOGETHER_MOST = 64, TASKS = 4, CONVERTED = 16 << 10 };
    const hc_conv_shape *s = &conv->shape;
    const hc_window *window = conv->window;
    const hc_view *x = conv->x;
    const int side = (int)s->r;
    const int64_t filters = s->filters / conv->window->groups, size = sizeof(float);
    const bool floats = x->dtype == HC_F32;
    if (s->group_channels != 1 || s->r != s->s || (side != 3 && side != 5 && side != 7) || window->stride[0] > 2 ||
        window->stride[1] != window->stride[0] || window->dilation[0] != 1 || window->dilation[1] != 1 ||
        s->out_width > MOST ||
        (floats && ((uintptr_t)x->data % sizeof(float) || !whole(x->strides[0]) || !whole(x->strides[1]) ||
                    !whole(x->strides[2]))))
        return false;
    tasks->rows = s->out_height;
    while (tasks->rows > DOWN && plane_work(conv, tasks->rows) > FLOATS)
        tasks->rows = hc_round_up(tasks->rows / 2, DOWN);
    const int64_t work = plane_work(conv, tasks->rows);
    int64_t needed; /* rows of an image */
    hc_plane_rows(conv, 0, tasks->rows, &needed);
    const int64_t pixels = hc_min(s->height, needed + window->pad_before[0]) * s->width;
    const int64_t planes = s->n * s->filters / TASKS / conv->run->n_threads;
    tasks->together = tasks->rows < s->out_height ? 1 : hc_max(1, hc_min(TOGETHER_MOST, planes));
    if (converts)
        tasks->together = hc_max(1, hc_min(tasks->together, CONVERTED / hc_max(pixels, 1)));
    if (filters > 1) /* of a plane */
        tasks->together = hc_min(tasks->together, filters);
    tasks->converted_at = hc_round_up(work * size, HC_CACHE_LINE);
    tasks->private_bytes = tasks->converted_at;
    if (converts)
        tasks->private_bytes += hc_round_up(tasks->together * pixels * size, HC_CACHE_LINE);
    return work <= MOST && (!converts || pixels <= MOST);
}

hc_conv_work hc_plane_counts(const hc_convolution *conv, int64_t lanes) {
    enum { DOWN = 8, WIDE = 7 };
    const hc_conv_shape *s = &conv->shape;
    const double planes = (double)s->n * (double)s->filters;
    const double outputs = planes * (double)(hc_round_up(s->out_height, DOWN) * hc_round_up(s->out_width, lanes));
    /* Outputs of whole blocks: 0.028 ns a product, or 0.022 of 7 x 7, and 0.28 ns to split rows for stride 2. Rows of
     * one register: as many times longer than that as `depthwise` takes longer than the plan expects, since the two
     * are compared (232 to 1152 planes of 7 x 7 and 14 x 14, Zen 4, AVX-512 and AVX2, 2026-11). */
    const bool narrow = s->out_width <= lanes;
    const double slower = !narrow ? 1 : lanes >= 16 ? 1.45 : 2;
    const double product = narrow ? 1.3 * slower : s->r == WIDE ? 1.4 : 1.77;
    const double half = conv->window->stride[0] == 2 ? (!narrow ? 3.4 : lanes >= 16 ? 2.9 : 6) * outputs : 0;
    return (hc_conv_work){.products = product * outputs * (double)(s->r * s->s), .values = half + 60 * slower * planes};
}

static hc_conv_work work_of(hc_planes_job *job, const hc_convolution *conv) {
    const hc_conv_shape *s = &conv->shape;
    const hc_view *w = conv->w->dense;
    const int64_t size = sizeof(float), n_threads = conv->run->n_threads;
    *job = (hc_planes_job){.conv = conv, .kernel = HC_BEST(planes_f32, conv->run)};
    hc_planes *p = &job->planes;
    hc_planes_init(p, conv, job->kernel->mr);
    job->filters = s->filters / conv->window->groups;
    job->columns = s->r * s->s * s->group_channels;
    job->packed = !filters_lie(conv);
    job->far = hc_values(conv->out) > FAR_BYTES / size && job->columns > FEW_PRODUCTS;
    if (job->packed)
        job->w_step[0] = job->columns, job->w_step[1] = s->group_channels, job->w_step[2] = 1;
    else
        job->w_step[0] = w->strides[0] / size, job->w_step[1] = w->strides[s->s == 1 ? 2 : 3] / size,
        job->w_step[2] = w->strides[1] / size;
    job->w = w && !job->packed ? w->data : NULL;
    job->at_once = hc_max(FEW_FILTERS, BAND_BYTES / size / job->columns / FEW_FILTERS * FEW_FILTERS);
    if (hc_plane_plan(conv, conv->x->dtype != HC_F32, &job->tasks)) {
        job->each = HC_PICK(plane_f32, conv->run);
        job->private_bytes = job->tasks.private_bytes;
        hc_conv_work work = hc_plane_counts(conv, p->lanes);
        const bool narrow = s->out_width <= p->lanes;
        const double value = conv->x->dtype == HC_F32 ? 0 : narrow && p->lanes < 16 ? 8 : 2; /* to convert */
        work.values += value * (double)s->n * (double)s->filters * (double)(s->height * s->width);
        work.bytes = n_threads * job->private_bytes;
        return work;
    }
    const int64_t bands = hc_planes_bands(p);
    job->parts = n_threads == 1 || bands >= 4 * n_threads
                     ? 1
                     : hc_max(1, hc_min(hc_ceil_div(4 * n_threads, bands), job->filters / FEW_FILTERS));
    job->tile_at = hc_round_up(p->copied * size, HC_CACHE_LINE);
    job->private_bytes = job->tile_at + hc_round_up(PART * BLOCKS * p->lanes * size, HC_CACHE_LINE);
    const double blocks = (double)hc_planes_blocks(p), kept = (double)(s->filters * job->columns);
    /* Pixels are copied one by one with a stride, and converted if they are not float32; a band takes as long as 2500
     * copied values, a row of it as 100 (groups of 1 to 16 channels at 7 x 7 to 56 x 56, Zen 4, 2026-11). With several
     * taps pixels come from L2. */
    const double lines = p->in_place ? 0 : (double)bands * (double)(p->channels * p->axis[0].of_phase);
    const double read = p->in_place ? 0 : (double)bands * (double)p->channels * (double)p->plane;
    /* The registers of small planes do not fill the last tile (49 pixels in place, AVX2, Zen 5, 2026-12). */
    enum { SMALL = 64 };
    const bool small = p->in_place && p->lanes == 8 && p->plane < SMALL && job->filters > FEW_FILTERS;
    const double slower = s->r * s->s > 1 || small ? 1.1 : 1;
    const bool halves = hc_dtype_size(conv->x->dtype) == 2; /* converted a register at a time */
    const double apart = conv->window->stride[1] > 1 || (conv->x->dtype != HC_F32 && !halves) ? 8 : halves ? 2 : 1;
    return (hc_conv_work){.products = slower * blocks * (double)p->lanes * (double)job->filters * (double)job->columns,
                          .values = (apart * read + (apart > 2 ? 0 : 100 * lines) + 2500 * (double)bands) *
                                    (double)job->parts,
                          .filters = job->packed ? kept : 0,
                          .bytes = (job->packed ? (int64_t)kept * size : 0) + n_threads * job->private_bytes};
}

const char *hc_conv_planes_refuses(const hc_convolution *conv) {
    const hc_conv_shape *s = &conv->shape;
    const char *reason = hc_planes_refuse(conv);
    const int64_t most = MOST_BYTES / (int64_t)sizeof(float);
    if (reason)
        return reason;
    if (!filters_lie(conv) && s->filters > most / (s->r * s->s * s->group_channels))
        return "filters as rows take more than 12 MiB";
    hc_planes planes;
    hc_planes_init(&planes, conv, HC_BEST(planes_f32, conv->run)->mr);
    return planes.copied <= most ? NULL : "the pixels that some outputs need take more than 12 MiB";
}

hc_conv_work hc_conv_planes_work(const hc_convolution *conv) {
    hc_planes_job job;
    return work_of(&job, conv);
}

/* One filter as a row (r, s, c). */
static void pack_filter(const hc_planes_job *job, int64_t filter) {
    const hc_conv_shape *s = &job->conv->shape;
    const hc_view *w = job->conv->w->dense;
    const int64_t taps = s->r * s->s, size = sizeof(float), channels = s->group_channels;
    float *to = job->packed_filters + filter * job->columns;
    if (w && w->dtype == HC_F32 && w->strides[3] == size && w->strides[2] == s->s * size &&
        w->strides[1] == taps * size && channels <= INT32_MAX) {
        const char *from = (const char *)w->data + filter * w->strides[0];
        for (int64_t c = 0; c < channels; c += 16)
            HC_PICK(pack_x32, job->conv->run)
        (from + c * taps * size, taps * size, (int)hc_min(16, channels - c), taps, to + c, (int)channels, 0);
        return;
    }
    hc_filters context_of;
    const hc_source source = hc_filter_source(job->conv, filter, 1, &context_of);
    source.floats(&source, 0, 1, 0, job->columns, to, job->columns);
}

/* Some filters that lie closer together than their channels: the units of 16 channels at a time become rows of channels. */
static void pack_beside(const hc_planes_job *job, int64_t filter, int64_t filters, int64_t units, const int64_t *tap) {
    const hc_conv_shape *s = &job->conv->shape;
    const hc_view *w = job->conv->w->dense;
    const int64_t taps = s->r * s->s, size = sizeof(float), channels = s->group_channels;
    const char *from = (const char *)w->data + filter * w->strides[0] - tap[0] * size;
    float lines[HC_BESIDE_UNITS * TOGETHER];
    const bool adjacent = units == 1 && w->strides[0] == size;
    for (int64_t c = 0; c < channels; c += TOGETHER, from += TOGETHER * w->strides[1]) {
        const int some = (int)hc_min(TOGETHER, channels - c);
        for (int64_t f = 0; f < (adjacent ? 1 : filters); f++) {
            HC_PICK(pack_x32, job->conv->run)
            (from + f * w->strides[0], w->strides[1], some, adjacent ? filters : units, lines, TOGETHER, 0);
            float *to = job->packed_filters + (filter + f) * job->columns + c;
            for (int64_t t = 0; t < (adjacent ? filters : taps); t++)
                memcpy(to + t * channels, lines + (adjacent ? t : tap[t]) * TOGETHER, (size_t)(some * size));
        }
    }
}

static void pack_task(void *context, int64_t task, int thread) {
    (void)thread;
    const hc_planes_job *job = context;
    const int64_t filter = task * TOGETHER, filters = hc_min(TOGETHER, job->conv->shape.filters - filter);
    int64_t tap[HC_BESIDE_UNITS];
    const int64_t units = hc_filters_beside(job->conv, tap);
    if (units > 0)
        pack_beside(job, filter, filters, units, tap);
    for (int64_t f = 0; f < filters && units == 0; f++)
        pack_filter(job, filter + f);
}

/* The outputs of some registers of pixels, of which each is part of a row of the band. */
static int blocks_of(const hc_planes_job *job, const hc_planes_band *band, int64_t first, hc_plane_block *block) {
    const hc_planes *p = &job->planes;
    const hc_view *out = job->conv->out;
    const int64_t n = hc_min(BLOCKS, band->blocks - first);
    int64_t row = first / band->per_row, q = first % band->per_row * p->lanes;
    char *image = (char *)out->data + band->image * out->strides[0] + band->first[1] * (int64_t)sizeof(float);
    for (int64_t i = 0; i < n; i++) {
        /* the last one ends with the row, and so has some pixels of the one before it */
        const int64_t at = hc_max(0, hc_min(q, band->n[1] - p->lanes));
        block[i].x = band->x + row * p->axis[1].of_phase + at;
        block[i].c = (float *)(void *)(image + (band->first[0] + row) * out->strides[2]) + at;
        block[i].n = hc_min(p->lanes, band->n[1]);
        q += p->lanes;
        if (q >= band->n[1])
            row++, q = 0;
    }
    return (int)n;
}

/* The same for a band that is one row, into `tile`. */
static int wide_blocks_of(const hc_planes_job *job, const hc_planes_band *band, int64_t first, float *tile,
                          hc_plane_block *block) {
    const int64_t n = hc_min(BLOCKS, band->blocks - first), lanes = job->planes.lanes;
    for (int64_t i = 0; i < n; i++)
        block[i] = (hc_plane_block){band->x + (first + i) * lanes, tile + i * lanes, lanes};
    return (int)n;
}

/* Stores n outputs of each filter, which begin at pixel `first` of a band that is one row, without those between rows. */
static void store_rows(const hc_planes_job *job, const hc_planes_band *band, int64_t first, int64_t n, int64_t filter,
                       int64_t filters, const float *tile) {
    const hc_view *out = job->conv->out;
    const int64_t wide = job->planes.axis[1].of_phase, ld = BLOCKS * job->planes.lanes;
    for (int64_t i = 0; i < n;) {
        const int64_t row = (first + i) / wide, q = (first + i) % wide, left = hc_min(wide - q, n - i);
        const int64_t some = hc_min(band->n[1] - q, left);
        char *to = (char *)out->data + band->image * out->strides[0] + filter * out->strides[1] +
                   (band->first[0] + row) * out->strides[2] + (band->first[1] + q) * (int64_t)sizeof *tile;
        for (int64_t f = 0; f < filters && some > 0 && row < band->n[0]; f++)
            memcpy(to + f * out->strides[1], tile + f * ld + i, (size_t)some * sizeof *tile);
        i += left;
    }
}

/* Filters [filter, filter + filters) of all groups, which are in one, times a band. */
static void multiply(const hc_planes_job *job, const hc_planes_band *band, int64_t filter, int64_t filters,
                     const int64_t *tap, float *tile) {
    const hc_planes *p = &job->planes;
    const hc_view *out = job->conv->out;
    const int64_t step = out->strides[1] / (int64_t)sizeof(float);
    const float *w = job->w + filter * job->w_step[0], *bias = job->bias ? job->bias + filter : NULL;
    hc_plane_block block[BLOCKS];
    for (int64_t first = 0; first < band->blocks; first += BLOCKS) {
        if (!band->wide) {
            const int n = blocks_of(job, band, first, block);
            for (int i = 0; i < n; i++)
                block[i].c += filter * step;
            job->kernel->fn.planes_f32(job->conv->shape.r * job->conv->shape.s, tap, p->channels, p->plane, w,
                                       job->w_step, filters, block, n, p->in_place, step, job->far, bias,
                                       job->conv->relu);
            continue;
        }
        const int n = wide_blocks_of(job, band, first, tile, block);
        for (int64_t f = 0, some; f < filters; f += some) {
            some = hc_min(PART, filters - f);
            job->kernel->fn.planes_f32(job->conv->shape.r * job->conv->shape.s, tap, p->channels, p->plane,
                                       w + f * job->w_step[0], job->w_step, some, block, n, false, BLOCKS * p->lanes,
                                       false, bias ? bias + f : NULL, job->conv->relu);
            store_rows(job, band, first * p->lanes, n * p->lanes, filter + f, some, tile);
        }
    }
}

static void band_task(void *context, int64_t task, int thread) {
    const hc_planes_job *job = context;
    uint8_t *own = job->private_memory + thread * job->private_bytes;
    const hc_planes_band band = hc_planes_read(&job->planes, task / job->parts, (float *)(void *)own);
    const int64_t part = hc_ceil_div(job->filters, job->parts), begin = task % job->parts * part;
    const int64_t end = hc_min(begin + part, job->filters);
    for (int64_t f = begin; f < end; f += job->at_once)
        multiply(job, &band, band.group * job->filters + f, hc_min(job->at_once, end - f), job->planes.tap,
                 (float *)(void *)(own + job->tile_at));
}

/* Planes of one image as float32, rows [first, first + rows) of each, one after the other. */
static void convert_planes(const hc_view *x, const char *from, int64_t planes, int64_t step, int64_t first,
                           int64_t rows, int64_t width, float *to) {
    const int64_t size = hc_dtype_size(x->dtype);
    const bool follow = x->strides[2] == width * size || rows == 1;
    if (follow && (step == rows * width * size || planes == 1)) {
        hc_read_floats(from + first * x->strides[2], x->dtype, size, planes * rows * width, to);
        return;
    }
    for (int64_t i = 0; i < planes; i++, from += step)
        for (int64_t h = 0; h < rows; h += follow ? rows : 1, to += follow ? rows * width : width)
            hc_read_floats(from + (first + h) * x->strides[2], x->dtype, size, follow ? rows * width : width, to);
}

/* Some rows of outputs of some filters of an image: of adjacent groups, or of one group. */
static void each_task(void *context, int64_t task, int thread) {
    const hc_planes_job *job = context;
    const hc_convolution *conv = job->conv;
    const hc_conv_shape *s = &conv->shape;
    const hc_view *x = conv->x, *out = conv->out;
    const int64_t strips = hc_ceil_div(s->out_height, job->tasks.rows), size = sizeof(float);
    const int64_t unit = job->filters > 1 ? job->filters : s->filters, units = s->filters / unit;
    const int64_t parts = hc_ceil_div(unit, job->tasks.together);
    const int64_t row = task % strips * job->tasks.rows, part = task / strips % parts,
                  image = task / strips / parts / units;
    const int64_t filter = task / strips / parts % units * unit + part * job->tasks.together;
    uint8_t *own = job->private_memory + thread * job->private_bytes;
    hc_plane plane = hc_plane_of(conv, row, hc_min(job->tasks.rows, s->out_height - row));
    plane.planes = hc_min(job->tasks.together, unit - part * job->tasks.together);
    plane.w = job->w + filter * job->w_step[0];
    plane.w_step = job->w_step[0];
    plane.bias = job->bias ? job->bias + filter : NULL;
    plane.c = (float *)(void *)((char *)out->data + image * out->strides[0] + filter * out->strides[1] +
                                row * out->strides[2]);
    plane.c_step = out->strides[1] / size;
    plane.work = (float *)(void *)own;
    const char *from = (const char *)x->data + image * x->strides[0] + filter / job->filters * x->strides[1];
    if (x->dtype == HC_F32) {
        plane.x = (const float *)(const void *)from;
        plane.x_step = job->filters > 1 ? 0 : x->strides[1] / size;
    } else {
        float *converted = (float *)(void *)(own + job->tasks.converted_at);
        const int64_t first = hc_plane_rows(conv, row, plane.down, &plane.rows);
        convert_planes(x, from, job->filters > 1 ? 1 : plane.planes, x->strides[1], first, plane.rows, s->width,
                       converted);
        plane.x = converted;
        plane.x_step = job->filters > 1 ? 0 : plane.rows * s->width;
        plane.row_step = s->width;
        plane.top += first;
    }
    job->each(&plane);
}

static int64_t each_tasks(const hc_planes_job *job) {
    const hc_conv_shape *s = &job->conv->shape;
    const int64_t unit = job->filters > 1 ? job->filters : s->filters;
    return s->n * (s->filters / unit) * hc_ceil_div(unit, job->tasks.together) *
           hc_ceil_div(s->out_height, job->tasks.rows);
}

static hc_filter_form form_of(const hc_planes_job *job) {
    if (!job->packed)
        return (hc_filter_form){0};
    return (hc_filter_form){.kernel = (intptr_t)job->kernel,
                            .groups = job->conv->window->groups,
                            .panels = job->filters,
                            .panel_floats = job->columns};
}

hc_filter_form hc_conv_planes_form(const hc_convolution *conv) {
    hc_planes_job job;
    work_of(&job, conv);
    return form_of(&job);
}

hc_status hc_conv_planes_prepack(const hc_convolution *conv, hc_prepacked_filters *to, hc_error *error) {
    (void)error;
    hc_planes_job job;
    work_of(&job, conv);
    job.packed_filters = hc_prepacked_panels_to(to);
    hc_parallel(conv->run->n_threads, hc_ceil_div(conv->shape.filters, TOGETHER), pack_task, &job);
    return HC_OK;
}

hc_status hc_conv_planes_run(const hc_convolution *conv, hc_error *error) {
    hc_planes_job job;
    work_of(&job, conv);
    const hc_conv_shape *s = &conv->shape;
    const int64_t size = sizeof(float), taps = s->r * s->s;
    const int64_t tap_bytes = hc_round_up(taps * (int64_t)sizeof(int64_t), HC_CACHE_LINE);
    const int64_t bias_bytes = hc_round_up(conv->bias ? s->filters * size : 0, HC_CACHE_LINE);
    const hc_filter_form form = form_of(&job);
    const float *ready = job.packed ? hc_prepacked_panels_of(conv, &form, 0) : NULL;
    const int64_t filter_bytes = hc_round_up(job.packed && !ready ? s->filters * job.columns * size : 0, HC_CACHE_LINE);
    const int n_threads = conv->run->n_threads;
    uint8_t *memory = hc_alloc_aligned(tap_bytes + bias_bytes + filter_bytes + n_threads * job.private_bytes);
    if (!memory)
        return hc_fail(error, HC_MEMORY, "conv2d: not enough memory for planes");
    job.planes.tap = (int64_t *)(void *)memory;
    job.bias = conv->bias ? (float *)(void *)(memory + tap_bytes) : NULL;
    job.packed_filters = (float *)(void *)(memory + tap_bytes + bias_bytes);
    job.private_memory = memory + tap_bytes + bias_bytes + filter_bytes;
    hc_planes_taps(&job.planes, job.planes.tap);
    for (int64_t f = 0; f < s->filters && job.bias; f++)
        memcpy(job.bias + f, (const char *)conv->bias->data + f * conv->bias->strides[0], sizeof *job.bias);
    if (ready) {
        job.w = ready;
    } else if (job.packed) {
        job.w = job.packed_filters;
        hc_parallel(n_threads, hc_ceil_div(s->filters, TOGETHER), pack_task, &job);
    }
    if (job.each)
        hc_parallel(n_threads, each_tasks(&job), each_task, &job);
    else
        hc_parallel(n_threads, hc_planes_bands(&job.planes) * job.parts, band_task, &job);
    hc_free_aligned(memory);
    return HC_OK;
}
