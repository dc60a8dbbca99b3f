/* Convolution of images whose planes lie one after the other (NCHW): pixels in lanes, as many registers of them as leave
 * room for their sums, times filters whose values are broadcast. One fmaf chain over (r, s, c) per output, with the bits
 * of `direct`. Nothing is transposed: neither pixels nor outputs nor, for 1 x 1, filters. A task is a band of outputs
 * (planes.h) and some filters of a group.
 *
 * Memory: filters larger than 1 x 1 with several channels as rows (r, s, c), at most MOST_BYTES; per thread a band of at
 * most BAND_BYTES or, if one register of pixels needs more, that, and a tile of outputs.
 */
#include "ops/conv/planes.h"

#include "base/threads.h"
#include "ops/conv/windows.h"

#include <string.h>

enum {
    MOST_BYTES = 12 << 20, /* of filters, as of panels of `direct`, and of the smallest band */
    BAND_BYTES = 256 << 10,  /* stays in L2 with as many bytes of filters */
    BLOCKS = 24,             /* registers of pixels of a call */
    PART = 48,               /* filters of a tile of outputs that are stored by rows */
    FEW_FILTERS = 12,        /* read pixels in place */
    FEW_CHANNELS = 8,        /* of filters that are read in place: several taps are in a cache line */
};

typedef struct {
    const hc_convolution *conv;
    const hc_kernel *kernel;
    hc_planes planes;
    int64_t filters, columns; /* of a group */
    int64_t parts;            /* tasks of a band, each some of its filters */
    int64_t at_once;          /* filters that stay in L2 */
    bool packed;
    int64_t w_step[3]; /* floats from a filter, a tap and a channel to the next */
    const float *w;
    float *packed_filters, *bias;
    uint8_t *private_memory;
    int64_t private_bytes, tile_at;
} hc_planes_job;

static bool whole(int64_t bytes) { return bytes % (int64_t)sizeof(float) == 0; }

/* Whether filters are read in place: each has its taps one after the other. */
static bool filters_lie(const hc_convolution *conv) {
    const hc_view *w = conv->w->dense;
    const hc_conv_shape *s = &conv->shape;
    if (!w || w->dtype != HC_F32 || (uintptr_t)w->data % sizeof(float) || !whole(w->strides[0]) ||
        !whole(w->strides[1]) || !whole(w->strides[2]) || !whole(w->strides[3]))
        return false;
    return s->r * s->s == 1 ||
           (s->group_channels < FEW_CHANNELS && (s->r == 1 || s->s == 1 || w->strides[2] == s->s * w->strides[3]));
}

/* ---- which pixels a band reads -------------------------------------------------------------------------------------- */

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
    p->joined = simple && (s->height == 1 || (x->strides[2] == s->width * hc_dtype_size(x->dtype) &&
                                              out->strides[2] == s->width * size));
    if (p->joined) {
        p->axis[1].size = p->axis[1].answers = s->height * s->width;
        p->axis[0].size = p->axis[0].answers = 1;
    }
    p->in_place = p->joined && x->dtype == HC_F32 && (uintptr_t)x->data % sizeof(float) == 0 && whole(x->strides[0]) &&
                  whole(x->strides[1]) && s->filters / window->groups <= FEW_FILTERS;
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

/* Whether a band of this size is read as one row, and its registers. */
static void count_blocks(const hc_planes *p, hc_planes_band *band) {
    const int64_t by_rows = band->n[0] * hc_ceil_div(band->n[1], p->lanes);
    const int64_t by_all = hc_ceil_div((band->n[0] - 1) * p->axis[1].of_phase + band->n[1], p->lanes);
    band->wide = by_all < by_rows;
    band->per_row = band->wide ? by_all : hc_ceil_div(band->n[1], p->lanes);
    band->blocks = band->wide ? by_all : by_rows;
}

int64_t hc_planes_blocks(const hc_planes *p) {
    int64_t sum = 0;
    for (int64_t row = 0; row < p->axis[0].answers; row += p->axis[0].at_once) {
        hc_planes_band band = {.n = {hc_min(p->axis[0].at_once, p->axis[0].answers - row), p->axis[1].at_once}};
        count_blocks(p, &band);
        sum += band.blocks * (p->axis[1].bands - 1);
        band.n[1] = p->axis[1].answers - (p->axis[1].bands - 1) * p->axis[1].at_once;
        count_blocks(p, &band);
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
    const char *image =
        (const char *)x->data + band->image * x->strides[0] + band->group * p->channels * x->strides[1];
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

hc_planes_band hc_planes_read(const hc_planes *p, int64_t number, float *memory) {
    const hc_view *x = p->conv->x;
    hc_planes_band band = {0};
    for (int i = 1; i >= 0; i--) {
        band.first[i] = number % p->axis[i].bands * p->axis[i].at_once;
        band.n[i] = hc_min(p->axis[i].at_once, p->axis[i].answers - band.first[i]);
        number /= p->axis[i].bands;
    }
    band.group = number % p->conv->window->groups;
    band.image = number / p->conv->window->groups;
    count_blocks(p, &band);
    band.x = memory;
    if (p->in_place)
        band.x = (const float *)(const void *)((const char *)x->data + band.image * x->strides[0] +
                                               band.group * p->channels * x->strides[1]) +
                 band.first[1];
    else
        copy_band(p, &band, memory);
    return band;
}

/* ---- the algorithm -------------------------------------------------------------------------------------------------- */

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
    if (job->packed)
        job->w_step[0] = job->columns, job->w_step[1] = s->group_channels, job->w_step[2] = 1;
    else
        job->w_step[0] = w->strides[0] / size, job->w_step[1] = w->strides[s->s == 1 ? 2 : 3] / size,
        job->w_step[2] = w->strides[1] / size;
    job->w = w && !job->packed ? w->data : NULL;
    job->at_once = hc_max(FEW_FILTERS, BAND_BYTES / size / job->columns / FEW_FILTERS * FEW_FILTERS);
    const int64_t bands = hc_planes_bands(p);
    job->parts = n_threads == 1 || bands >= 4 * n_threads
                     ? 1
                     : hc_max(1, hc_min(hc_ceil_div(4 * n_threads, bands), job->filters / FEW_FILTERS));
    job->tile_at = hc_round_up(p->copied * size, HC_CACHE_LINE);
    job->private_bytes = job->tile_at + hc_round_up(PART * BLOCKS * p->lanes * size, HC_CACHE_LINE);
    const double blocks = (double)hc_planes_blocks(p), kept = (double)(s->filters * job->columns);
    const double read = p->in_place ? 0 : (double)bands * (double)p->channels * (double)p->plane;
    return (hc_conv_work){.products = blocks * (double)p->lanes * (double)job->filters * (double)job->columns,
                          .values = read * (double)job->parts,
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
static void pack_task(void *context, int64_t filter, int thread) {
    (void)thread;
    const hc_planes_job *job = context;
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

/* The outputs of some registers of pixels, of which each is part of a row of the band. */
static int blocks_of(const hc_planes_job *job, const hc_planes_band *band, int64_t first, hc_plane_block *block) {
    const hc_planes *p = &job->planes;
    const hc_view *out = job->conv->out;
    const int64_t n = hc_min(BLOCKS, band->blocks - first);
    int64_t row = first / band->per_row, q = first % band->per_row * p->lanes;
    char *image = (char *)out->data + band->image * out->strides[0] +
                  band->first[1] * (int64_t)sizeof(float);
    for (int64_t i = 0; i < n; i++) {
        block[i].x = band->x + row * p->axis[1].of_phase + q;
        block[i].c = (float *)(void *)(image + (band->first[0] + row) * out->strides[2]) + q;
        block[i].n = hc_min(p->lanes, band->n[1] - q);
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
                                       job->w_step, filters, block, n, p->in_place, step, bias, job->conv->relu);
            continue;
        }
        const int n = wide_blocks_of(job, band, first, tile, block);
        for (int64_t f = 0, some; f < filters; f += some) {
            some = hc_min(PART, filters - f);
            job->kernel->fn.planes_f32(job->conv->shape.r * job->conv->shape.s, tap, p->channels, p->plane,
                                       w + f * job->w_step[0], job->w_step, some, block, n, false, BLOCKS * p->lanes,
                                       bias ? bias + f : NULL, job->conv->relu);
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

hc_status hc_conv_planes_run(const hc_convolution *conv, hc_error *error) {
    hc_planes_job job;
    work_of(&job, conv);
    const hc_conv_shape *s = &conv->shape;
    const int64_t size = sizeof(float), taps = s->r * s->s;
    const int64_t tap_bytes = hc_round_up(taps * (int64_t)sizeof(int64_t), HC_CACHE_LINE);
    const int64_t bias_bytes = hc_round_up(conv->bias ? s->filters * size : 0, HC_CACHE_LINE);
    const int64_t filter_bytes = hc_round_up(job.packed ? s->filters * job.columns * size : 0, HC_CACHE_LINE);
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
    if (job.packed) {
        job.w = job.packed_filters;
        hc_parallel(n_threads, s->filters, pack_task, &job);
    }
    hc_parallel(n_threads, hc_planes_bands(&job.planes) * job.parts, band_task, &job);
    hc_free_aligned(memory);
    return HC_OK;
}
