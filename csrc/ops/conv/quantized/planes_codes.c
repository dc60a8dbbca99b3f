/* `planes` of integers: images whose planes lie one after the other (NCHW), pixels in lanes, exact in int32, then one
 * scaling per output in float64. A word has the codes of two channels of a pixel, or of two of its rows if that makes fewer
 * words, as for filters of one channel. Filters have 8 or 16 bits. Codes are made by bands (planes.h), which are read as
 * bands of floats are: nothing is transposed.
 *
 * Memory: the filters as words, at most MOST_BYTES, and scales; per thread a band, the rows that it reads of one plane,
 * a tile of outputs, and the scales of its filters.
 */
#include "base/threads.h"
#include "kernels/kernel.h"
#include "ops/conv/planes.h"
#include "ops/conv/quantized/codes.h"
#include "ops/conv/quantized/plane_codes.h"
#include "ops/conv/windows.h"

#include <string.h>

enum {
    MOST_BYTES = 12 << 20,   /* of filters, and of the smallest band */
    LONGEST = 65536,         /* the kernel's budget */
    LONGEST_WIDE = 512,      /* with filters of 16 bits */
    PANEL_BYTES = 256 << 10, /* of filters that stay in L2 with a band */
    IMAGE_BYTES = 1 << 20,   /* of images whose scales are found before they are multiplied */
    WIDE = 32,               /* codes that kernels make together */
    BLOCKS = 24,             /* registers of pixels of a call */
    PART = 48,               /* filters of a tile of outputs that are stored by rows, whole panels */
};

typedef struct {
    const hc_convolution *conv;
    const hc_kernel *kernel;
    int limbs;    /* of a filter's codes: 1 or 2 */
    bool by_rows; /* words are of two rows */
    /* the convolution of words */
    hc_convolution words;
    hc_view view;
    hc_window window;
    hc_planes planes;
    int64_t filters, columns; /* of a group; words of a filter */
    int64_t panels;           /* of a group */
    int64_t parts;            /* tasks of a band, each some of its filters */
    int64_t at_once;          /* filters that stay in L2 */
    int64_t first, images;    /* at hand */
    int32_t *panel;           /* of all groups */
    float *w_scale, *bias, *scale;
    uint32_t *largest;
    uint8_t *private_memory;
    int64_t private_bytes, tile_at, line_at, scale_at;
    int64_t lines; /* rows of words of the image that a band reads */
    bool apart;    /* not all of them are read: they are coded one by one */
} hc_planes_codes_job;

static int64_t pairs_of(const hc_conv_shape *s, bool by_rows) {
    return by_rows ? s->group_channels * hc_ceil_div(s->r, 2) : hc_ceil_div(s->group_channels, 2) * s->r;
}

static const char *plan(hc_planes_codes_job *job, const hc_convolution *conv) {
    const hc_conv_shape *s = &conv->shape;
    const int64_t size = sizeof(float), n_threads = conv->run->n_threads;
    *job = (hc_planes_codes_job){.conv = conv, .kernel = HC_BEST(planes_s16, conv->run), .words = *conv};
    job->limbs = hc_integers_of(&conv->w->packed->format, HC_INT_FOLDED).n_limbs;
    /* not 2 x 1: a row of its words would be taken for a filter of one pixel (hc_planes.joined) */
    job->by_rows = (s->r > 2 || s->s > 1) && pairs_of(s, true) < pairs_of(s, false);
    job->view = *conv->x;
    job->view.data = (char *)1; /* it is never read in place, which an odd address says */
    job->window = *conv->window;
    job->words.x = &job->view;
    job->words.window = &job->window;
    job->words.shape.r = job->by_rows ? hc_ceil_div(s->r, 2) : s->r;
    job->words.shape.group_channels = job->by_rows ? s->group_channels : hc_ceil_div(s->group_channels, 2);
    job->window.dilation[0] *= job->by_rows ? 2 : 1;
    const hc_planes *p = &job->planes;
    hc_planes_init(&job->planes, &job->words, job->kernel->mr);
    job->filters = s->filters / conv->window->groups;
    job->columns = job->words.shape.r * s->s * job->words.shape.group_channels;
    job->panels = hc_ceil_div(job->filters, job->kernel->nr);
    const int64_t nr = job->kernel->nr, most = MOST_BYTES / size;
    if (job->columns > (job->limbs == 1 ? LONGEST : LONGEST_WIDE) / 2) /* sums stay below 2^31 */
        return job->limbs == 1 ? "windows of more than 65536 values" : "windows of more than 512 values of 16 bits";
    if (job->panels * conv->window->groups > most / nr / job->columns)
        return "filters as words take more than 12 MiB";
    if (p->copied > most)
        return "the pixels that some outputs need take more than 12 MiB";
    job->at_once = hc_max(PART / nr * nr, PANEL_BYTES / size / job->columns / nr * nr);
    const int64_t bands = hc_planes_bands(p);
    job->parts = n_threads == 1 || bands >= 4 * n_threads
                     ? 1
                     : hc_max(1, hc_min(hc_ceil_div(4 * n_threads, bands), job->panels));
    job->images = hc_max(1, hc_min(s->n, IMAGE_BYTES / size / hc_max(1, s->channels * s->height * s->width)));
    const hc_planes_axis *down = &p->axis[0];
    job->apart = down->phases < down->stride || (!job->by_rows && s->r * s->s == 1);
    job->lines = p->joined ? 0 : job->apart ? 1 : (down->of_phase - 1) * down->stride + down->phases;
    if (job->lines > most / hc_max(1, s->width))
        return "the pixels that some outputs need take more than 12 MiB";
    job->tile_at = hc_round_up(p->copied * size, HC_CACHE_LINE);
    job->line_at = job->tile_at + hc_round_up(PART * BLOCKS * p->lanes * size, HC_CACHE_LINE);
    job->scale_at = job->line_at + hc_round_up(job->lines * s->width * size, HC_CACHE_LINE);
    const int64_t codes = s->r * s->s * s->group_channels * job->limbs * nr; /* of a panel, before there are bands */
    job->private_bytes = hc_max(job->scale_at + job->filters * (int64_t)sizeof(double), codes);
    job->private_bytes = hc_round_up(job->private_bytes, HC_CACHE_LINE);
    return NULL;
}

/* Memory that all threads share. */
static int64_t shared_bytes(const hc_planes_codes_job *job) {
    const hc_conv_shape *s = &job->conv->shape;
    const int64_t taps = job->words.shape.r * s->s, groups = job->conv->window->groups, size = sizeof(float);
    return hc_round_up(taps * (int64_t)sizeof(int64_t) + groups * job->panels * job->kernel->nr * job->columns * size +
                           2 * s->filters * size + job->images * (1 + s->height) * size,
                       HC_CACHE_LINE);
}

const char *hc_conv_planes_codes_refuses(const hc_convolution *conv) {
    if (!hc_conv_plane_codes_refuses(conv))
        return NULL;
    const hc_view *x = conv->x;
    const char *reason = hc_codes_refuse(conv, 2, false);
    if (reason)
        return reason;
    if (!hc_lines_make_codes(conv) || conv->activations->group)
        return "x is not float32 that becomes codes of 8 bits with one scale an image";
    for (int i = 0; i < 4; i++)
        if (((uintptr_t)x->data | (uintptr_t)x->strides[i]) % sizeof(float))
            return "pixels are not aligned";
    if ((reason = hc_planes_refuse(conv)))
        return reason;
    hc_planes_codes_job job;
    return plan(&job, conv);
}

hc_conv_work hc_conv_planes_codes_work(const hc_convolution *conv) {
    if (!hc_conv_plane_codes_refuses(conv))
        return hc_conv_plane_codes_work(conv);
    hc_planes_codes_job job;
    plan(&job, conv);
    const hc_planes *p = &job.planes;
    const double outputs = (double)hc_planes_blocks(p) * (double)p->lanes * (double)job.filters;
    const double bands = (double)hc_planes_bands(p), words = bands * (double)p->channels * (double)p->plane;
    /* Few filters share the loads of pixels. Several taps read pixels from L2. With a stride, words are copied one by one. A
     * band takes as long as 3000 outputs (Zen 4, 2026-11). */
    const double loads = 1 + 1.5 / (double)hc_min(job.filters, job.kernel->nr);
    /* filters of one channel: 14 layers of 32 to 960 channels @ 7 to 112, where it is never the fastest (Zen 4, 2026-12) */
    const bool alone_in_group = conv->shape.group_channels == 1;
    const double slower = alone_in_group                          ? (job.limbs > 1 ? 1.8 : 1.5)
                          : job.words.shape.r * conv->shape.s > 1 ? 1.15
                                                                  : 1;
    const double apart = conv->window->stride[1] > 1 ? 2 * words : 0;
    /* rows of a view that are coded one by one take 45 ns each (512 to 24 @ 14, views, Zen 4, 2026-11) */
    const double rows = (double)conv->shape.n * (double)conv->window->groups * (double)p->channels;
    const double alone = job.apart && !p->joined ? 200 * rows * (double)conv->shape.out_height : 0;
    return (hc_conv_work){.products = 2 * slower * loads * outputs * (double)job.columns,
                          .values = outputs + apart + alone + 3000 * bands,
                          .filters = (double)conv->shape.filters * (double)job.columns * 2,
                          .bytes = shared_bytes(&job) + conv->run->n_threads * job.private_bytes};
}

static inline int32_t word_of(int low, int high) {
    return (int32_t)((uint32_t)(uint16_t)low | (uint32_t)(uint16_t)high << 16);
}

/* Code i of a filter; high: the high limbs, or NULL. */
static inline int code_of(const int8_t *codes, const int8_t *high, int64_t i) {
    return high ? high[i] * 256 + (uint8_t)codes[i] : codes[i];
}

/* The filters of a panel as words. */
static void pack_task(void *context, int64_t task, int thread) {
    const hc_planes_codes_job *job = context;
    const hc_conv_shape *s = &job->conv->shape;
    const int64_t nr = job->kernel->nr, group = task / job->panels, f = task % job->panels * nr;
    const int64_t channels = s->group_channels, row = s->s * channels, all = s->r * row;
    const int64_t first = group * job->filters + f, n = hc_min(nr, job->filters - f);
    int8_t *codes = (int8_t *)job->private_memory + thread * job->private_bytes;
    int8_t *high = job->limbs > 1 ? codes + nr * all : NULL;
    hc_filters filters;
    const hc_source source = hc_filter_source(job->conv, first, n, &filters);
    const hc_int_tile tile = {.limb = {codes, high}, .ld = all, .row_scale = job->w_scale + first};
    source.integers(&source, HC_INT_FOLDED, 0, n, 0, all, &tile);
    int32_t *panel = job->panel + task * nr * job->columns;
    if (n < nr) /* a panel that is not filled is read */
        memset(panel, 0, (size_t)(nr * job->columns) * sizeof *panel);
    for (int64_t k = 0; k < n; k++, panel++, codes += all, high = hc_offset(high, all)) {
        int32_t *to = panel;
        for (int64_t r = 0; r < s->r && job->by_rows; r += 2)
            for (int64_t i = r * row; i < (r + 1) * row; i++, to += nr)
                *to = word_of(code_of(codes, high, i), r + 1 < s->r ? code_of(codes, high, i + row) : 0);
        for (int64_t tap = 0; tap < s->r * s->s && !job->by_rows; tap++)
            for (int64_t c = 0, i = tap * channels; c < channels; c += 2, i += 2, to += nr)
                *to = word_of(code_of(codes, high, i), c + 1 < channels ? code_of(codes, high, i + 1) : 0);
    }
}

/* Words of rows [first, first + rows) of the image and of as many from `next` on, rows of zeros outside, of `width` each.
 * Rows that lie one after the other are coded together. low and high: row 0 of their planes; high may be NULL. */
static void word_rows(const hc_planes_codes_job *job, const char *low, const char *high, int64_t first, int64_t next,
                      int64_t rows, float scale, int32_t *to) {
    const hc_conv_shape *s = &job->conv->shape;
    const int64_t step = job->conv->x->strides[2], width = s->width;
    const bool follow = step == width * (int64_t)sizeof(float);
    hc_code_pairs_s8_fn *codes = HC_PICK(code_pairs_s8, job->conv->run);
    for (int64_t i = 0, n; i < rows; i += n, to += n * width) {
        const bool has_low = first + i >= 0 && first + i < s->height;
        const bool has_high = high && next + i >= 0 && next + i < s->height;
        for (n = 1; follow && i + n < rows; n++) /* as long as both go on */
            if (has_low != (first + i + n >= 0 && first + i + n < s->height) ||
                has_high != (high && next + i + n >= 0 && next + i + n < s->height))
                break;
        const float *a = has_low ? (const float *)(const void *)(low + (first + i) * step) : NULL;
        const float *b = has_high ? (const float *)(const void *)(high + (next + i) * step) : NULL;
        if (has_low)
            codes(a, b, n * width, scale, to);
        else if (has_high)
            codes(b, NULL, n * width, scale, to);
        else
            memset(to, 0, (size_t)(n * width) * sizeof *to);
        for (int64_t j = 0; j < n * width && has_high && !has_low; j++)
            to[j] = (int32_t)((uint32_t)to[j] << 16);
    }
}

/* n words of a row, `step` apart, the first at column `first`; zeros outside. */
static void copy_row(const int32_t *row, int64_t width, int64_t first, int64_t step, int64_t n, int32_t *to) {
    const int64_t begin = first < 0 ? hc_min(n, (-first + step - 1) / step) : 0;
    const int64_t end = hc_max(begin, hc_min(n, width > first ? (width - first + step - 1) / step : 0));
    const int32_t *from = row + first;
    memset(to, 0, (size_t)begin * sizeof *to);
    if (step == 1)
        memcpy(to + begin, from + begin, (size_t)(end - begin) * sizeof *to);
    else if (step == 2)
        for (int64_t i = begin; i < end; i++)
            to[i] = from[2 * i];
    else
        for (int64_t i = begin; i < end; i++)
            to[i] = from[step * i];
    memset(to + end, 0, (size_t)(n - end) * sizeof *to);
}

/* Makes the codes of a band. lines: memory for job->lines rows of words of the image. */
static void fill(const hc_planes_codes_job *job, const hc_planes_band *band, float scale, int32_t *lines, int32_t *to) {
    const hc_view *x = job->conv->x;
    const hc_conv_shape *s = &job->conv->shape;
    const hc_planes *p = &job->planes;
    const hc_planes_axis *down = &p->axis[0], *across = &p->axis[1];
    const int64_t rows = band->n[0] + down->of_phase - down->at_once;
    const int64_t columns = band->n[1] + across->of_phase - across->at_once;
    const int64_t channels = s->group_channels, apart = job->by_rows ? job->conv->window->dilation[0] : 0;
    const int64_t top = band->first[0] * down->stride - down->before;
    const int64_t last = (down->taps - 1) * down->dilation % down->stride;
    /* rows that are long enough for whole registers are coded in place */
    const bool whole =
        across->stride == 1 && s->width >= WIDE && across->bands == 1 && columns >= across->before + s->width;
    const bool one = down->dilation % down->stride == 0; /* taps read phase `last` alone */
    const char *image = (const char *)x->data + band->image * x->strides[0] + band->group * channels * x->strides[1];
    for (int64_t pair = 0; pair < p->channels; pair++, to += p->plane) {
        const char *low = image + (job->by_rows ? pair : 2 * pair) * x->strides[1];
        const char *high = job->by_rows ? low : 2 * pair + 1 < channels ? low + x->strides[1] : NULL;
        if (p->joined) {
            const int64_t at = band->first[1] * (int64_t)sizeof(float);
            HC_PICK(code_pairs_s8, job->conv->run)
            ((const float *)(const void *)(low + at), high ? (const float *)(const void *)(high + at) : NULL, columns,
             scale, to);
            continue;
        }
        if (whole) {
            for (int64_t i = 0; i < down->phases * rows; i++) { /* phase by phase */
                const int64_t line = i % rows * down->stride + i / rows;
                int32_t *row = to + (i / rows * down->of_phase + i % rows) * across->of_phase;
                memset(row, 0, (size_t)across->before * sizeof *row);
                word_rows(job, low, high, top + line, top + line + apart, 1, scale, row + across->before);
                memset(row + across->before + s->width, 0, (size_t)(columns - across->before - s->width) * sizeof *row);
            }
            continue;
        }
        if (!job->apart)
            word_rows(job, low, high, top, top + apart, (rows - 1) * down->stride + down->phases, scale, lines);
        for (int64_t a = 0; a < down->phases; a++)
            for (int64_t i = 0; i < rows && (!one || a == last); i++) {
                const int64_t line = i * down->stride + a;
                if (job->apart)
                    word_rows(job, low, high, top + line, top + line + apart, 1, scale, lines);
                for (int64_t b = 0; b < across->phases; b++)
                    copy_row(lines + (job->apart ? 0 : line * s->width), s->width,
                             band->first[1] * across->stride + b - across->before, across->stride, columns,
                             to + ((a * across->phases + b) * down->of_phase + i) * across->of_phase);
            }
    }
    memset(to, 0, (size_t)(p->copied - p->channels * p->plane) * sizeof *to);
}

/* The outputs of some registers of pixels: of rows of the band or, if it is one row, in `tile`. */
static int blocks_of(const hc_planes_codes_job *job, const hc_planes_band *band, const int32_t *x, int64_t first,
                     char *out, float *tile, hc_code_block *block) {
    const int64_t n = hc_min(BLOCKS, band->blocks - first), lanes = job->planes.lanes;
    int64_t row = first / band->per_row, q = first % band->per_row * lanes;
    for (int64_t i = 0; i < n; i++) {
        if (band->wide) {
            block[i] = (hc_code_block){x + (first + i) * lanes, tile + i * lanes, lanes};
            continue;
        }
        /* the last one ends with the row, and so has some pixels of the one before it */
        const int64_t at = hc_max(0, hc_min(q, band->n[1] - lanes));
        float *to = (float *)(void *)(out + (band->first[0] + row) * job->conv->out->strides[2]) + band->first[1] + at;
        block[i] = (hc_code_block){x + row * job->planes.axis[1].of_phase + at, to, hc_min(lanes, band->n[1])};
        q += lanes;
        if (q >= band->n[1])
            row++, q = 0;
    }
    return (int)n;
}

/* Stores n outputs of each filter, which begin at pixel `first` of a band that is one row, without those between rows. */
static void store_rows(const hc_planes_codes_job *job, const hc_planes_band *band, int64_t first, int64_t n, char *out,
                       int64_t filters, const float *tile) {
    const hc_view *view = job->conv->out;
    const int64_t wide = job->planes.axis[1].of_phase, ld = BLOCKS * job->planes.lanes;
    for (int64_t i = 0; i < n;) {
        const int64_t row = (first + i) / wide, q = (first + i) % wide, left = hc_min(wide - q, n - i);
        const int64_t some = hc_min(band->n[1] - q, left);
        char *to = out + (band->first[0] + row) * view->strides[2] + (band->first[1] + q) * (int64_t)sizeof *tile;
        for (int64_t f = 0; f < filters && some > 0 && row < band->n[0]; f++)
            memcpy(to + f * view->strides[1], tile + f * ld + i, (size_t)some * sizeof *tile);
        i += left;
    }
}

/* Filters [filter, filter + filters) of the band's group. */
static void multiply(const hc_planes_codes_job *job, const hc_planes_band *band, const int32_t *x, int64_t filter,
                     int64_t filters, const double *scale, float *tile) {
    const hc_convolution *conv = job->conv;
    const hc_planes *p = &job->planes;
    const int64_t nr = job->kernel->nr, first_filter = band->group * job->filters + filter;
    char *out = (char *)conv->out->data + band->image * conv->out->strides[0] + first_filter * conv->out->strides[1];
    const int32_t *panel = job->panel + (band->group * job->panels + filter / nr) * nr * job->columns;
    const float *bias = job->bias ? job->bias + first_filter : NULL;
    const int64_t taps = job->words.shape.r * conv->shape.s, part = band->wide ? PART / nr * nr : filters;
    const int64_t ldc = band->wide ? BLOCKS * p->lanes : conv->out->strides[1] / (int64_t)sizeof(float);
    hc_code_block block[BLOCKS];
    for (int64_t first = 0; first < band->blocks; first += BLOCKS) {
        const int n = blocks_of(job, band, x, first, out, tile, block);
        for (int64_t f = 0; f < filters; f += part) {
            const int64_t some = hc_min(part, filters - f);
            job->kernel->fn.planes_s16(taps, p->tap, p->channels, p->plane, panel + f * job->columns, some, block, n,
                                       ldc, scale + filter + f, bias ? bias + f : NULL, conv->relu);
            if (band->wide)
                store_rows(job, band, first * p->lanes, n * p->lanes, out + f * conv->out->strides[1], some, tile);
        }
    }
}

static void band_task(void *context, int64_t task, int thread) {
    const hc_planes_codes_job *job = context;
    const hc_planes *p = &job->planes;
    uint8_t *own = job->private_memory + thread * job->private_bytes;
    const int64_t bands = hc_planes_bands(p) / job->conv->shape.n;
    hc_planes_band band = hc_planes_at(p, job->first * bands + task / job->parts);
    const float scale = job->scale[band.image - job->first];
    int32_t *x = (int32_t *)(void *)own;
    double *scales = (double *)(void *)(own + job->scale_at);
    fill(job, &band, scale, (int32_t *)(void *)(own + job->line_at), x);
    hc_planes_count(p, &band);
    const int64_t nr = job->kernel->nr, part = hc_ceil_div(job->panels, job->parts) * nr;
    const int64_t begin = task % job->parts * part, end = hc_min(begin + part, job->filters);
    for (int64_t f = begin; f < end; f++)
        scales[f] = (double)scale * (double)job->w_scale[band.group * job->filters + f];
    for (int64_t f = begin; f < end; f += job->at_once)
        multiply(job, &band, x, f, hc_min(job->at_once, end - f), scales, (float *)(void *)(own + job->tile_at));
}

hc_status hc_conv_planes_codes_run(const hc_convolution *conv, hc_error *error) {
    if (!hc_conv_plane_codes_refuses(conv))
        return hc_conv_plane_codes_run(conv, error);
    hc_planes_codes_job job;
    plan(&job, conv);
    const hc_conv_shape *s = &conv->shape;
    const int64_t taps = job.words.shape.r * s->s, groups = conv->window->groups, nr = job.kernel->nr;
    const int n_threads = conv->run->n_threads;
    const int64_t shared = shared_bytes(&job), bands = hc_planes_bands(&job.planes) / hc_max(s->n, 1);
    uint8_t *memory = hc_alloc_aligned(shared + n_threads * job.private_bytes);
    if (!memory)
        return hc_fail(error, HC_MEMORY, "conv2d: not enough memory for planes");
    job.planes.tap = (int64_t *)(void *)memory;
    job.panel = (int32_t *)(void *)(job.planes.tap + taps);
    job.w_scale = (float *)(void *)(job.panel + groups * job.panels * nr * job.columns);
    float *bias = job.w_scale + s->filters;
    job.scale = bias + s->filters;
    job.largest = (uint32_t *)(void *)(job.scale + job.images);
    job.private_memory = memory + shared;
    job.bias = conv->bias ? bias : NULL;
    hc_planes_taps(&job.planes, job.planes.tap);
    for (int64_t f = 0; f < s->filters && job.bias; f++)
        memcpy(job.bias + f, (const char *)conv->bias->data + f * conv->bias->strides[0], sizeof *job.bias);
    hc_parallel(n_threads, groups * job.panels, pack_task, &job);
    hc_status status = HC_OK;
    for (job.first = 0; status == HC_OK && job.first < s->n; job.first += job.images) {
        const int64_t images = hc_min(job.images, s->n - job.first);
        status = hc_images_scales(conv->images, job.first, images, job.largest, job.scale, error);
        if (status == HC_OK)
            hc_parallel(n_threads, images * bands * job.parts, band_task, &job);
    }
    hc_free_aligned(memory);
    return status;
}
