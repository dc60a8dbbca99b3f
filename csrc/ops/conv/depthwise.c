/* Convolution of groups with few channels and as many filters, from one (depthwise) to 8. Filters of all groups are in
 * lanes, and windows are read in place. One fmaf chain over (r, s, c) per value, with the bits of `direct`. A task is a
 * row of outputs. Outputs whose windows are inside the image's columns have a constant step, and the few at its sides
 * are computed one by one. For 3 x 3 filters of one channel a task is several rows, in blocks of outputs that share the
 * pixels they read. For filters of one channel whose rows have 5 or 7 taps, and for codes with a scale per tap also 3, a
 * task is a row in lines of outputs, with the addresses of all pixels of their windows, padding included.
 *
 * Quantized images are rounded to floats first (quantized/rounded.h).
 *
 * Memory: the filters, tap by tap, and less than 1 MiB per thread: its part of a band (pixels.h), pointers, and, if the
 * channels of the result are not contiguous, the outputs of the band or a tile of them.
 */
#include "base/threads.h"
#include "kernels/kernel.h"
#include "ops/conv/filters.h"
#include "ops/conv/pixels.h"
#include "ops/conv/quantized/rounded.h"

#include <string.h>

/* Outputs of a call, so that their pixels stay in L1 for all channels; filters that are written at once; rows and
 * columns of pixels of a block. */
enum { ANSWERS = 16, PART = 64, BESIDE = 8, MOST_ROWS = 9 };
/* Rows of a filter and outputs of a row for which there are addresses of all pixels; bytes of these pixels in L1. */
enum { MOST_LINES = 16, MOST_WIDTH = 2048, LINE_BYTES = 24 << 10 };
/* Images and results that leave an L3 of 32 MiB from call to call; nearer ones are slower if they are fetched (Zen 5, 2026-12). */
enum { FAR_BYTES = 36 << 20 };

typedef struct {
    const hc_convolution *conv;
    hc_depthwise_f32_fn *kernel; /* kernel for one channel per group */
    hc_grouped_f32_fn *grouped;
    hc_depthwise_scaled_f32_fn *scaled; /* kernel for codes, with `scales`; otherwise NULL */
    /* kernel for blocks of outputs of 3 x 3 filters of one channel, for lines of those of 5 or 7 columns; otherwise NULL */
    const hc_kernel *block;
    hc_depthwise_line_f32_fn *line;
    hc_depthwise_line_scaled_f32_fn *scaled_line; /* of `scaled` */
    int64_t line_columns;                         /* of pixels of all outputs of a row */
    int64_t rows;                                 /* rows of outputs per task */
    bool far;                                     /* blocks read images in place, and from memory */
    hc_pixels pixels;
    int64_t filters, taps, run;
    int64_t beside;        /* number of filters next to each other in a panel */
    float *panel, *scales; /* scales of taps, and of an image; otherwise NULL */
    float *bias;           /* that blocks add, or NULL */
    uint8_t *private_memory;
    int64_t private_bytes, tile_at;
} hc_depthwise_job;

/* Rounded images as codes: the codes and scales of all filters, and the scale of the current image. */
typedef struct {
    const float *codes, *scales;
    float image_scale;
} hc_scaled_taps;

static int64_t panel_floats(const hc_depthwise_job *job) {
    return hc_round_up(job->taps * job->run * hc_round_up(job->filters, job->beside), 16);
}

/* `scaled`: for codes with a scale per tap. */
static hc_conv_work work_of(hc_depthwise_job *job, const hc_convolution *conv, bool scaled) {
    const hc_conv_shape *s = &conv->shape;
    *job = (hc_depthwise_job){
        .conv = conv, .kernel = HC_PICK(depthwise_f32, conv->run), .grouped = HC_PICK(grouped_f32, conv->run)};
    const hc_window *window = conv->window;
    const bool in_blocks = !scaled && s->group_channels == 1 && s->r == 3 && s->s == 3 && window->dilation[0] == 1 &&
                           window->dilation[1] == 1 && window->stride[0] == window->stride[1] && window->stride[0] <= 2;
    job->block = in_blocks ? HC_BEST(depthwise3_f32, conv->run) : NULL;
    const bool in_lines = s->group_channels == 1 && (s->s == 5 || s->s == 7 || (scaled && s->s == 3)) &&
                          window->dilation[1] == 1 && window->stride[1] <= 2 && s->r <= MOST_LINES &&
                          s->out_width <= MOST_WIDTH;
    job->scaled = scaled ? HC_PICK(depthwise_scaled_f32, conv->run) : NULL;
    job->line = in_lines ? HC_PICK(depthwise_line_f32, conv->run) : NULL;
    job->scaled_line = in_lines ? HC_PICK(depthwise_line_scaled_f32, conv->run) : NULL;
    job->line_columns = in_lines ? (s->out_width - 1) * window->stride[1] + s->s : 0;
    job->rows = in_blocks ? job->block->mr : 1;
    hc_pixels_stage(&job->pixels, conv, job->rows);
    job->far = in_blocks && !job->pixels.copies &&
               hc_values(conv->x) + hc_values(conv->out) > FAR_BYTES / (int64_t)sizeof(float);
    job->filters = s->filters;
    job->taps = s->r * s->s;
    job->run = s->group_channels;
    job->beside = job->run == 1 ? s->filters : BESIDE;
    const int64_t size = sizeof(float);
    const int64_t addresses = hc_max(s->r * job->line_columns * (int64_t)sizeof(float *),
                                     job->taps * (int64_t)(sizeof(float *) + sizeof(int64_t)));
    job->tile_at = hc_round_up(addresses, HC_CACHE_LINE);
    job->private_bytes = job->tile_at + ANSWERS * PART * size;
    const double answers = (double)s->n * (double)(s->out_height * s->out_width);
    const double products = answers * (double)(job->filters * job->taps * job->run);
    /* With one channel per group each product needs a load, where tiles of the other algorithms use one for several. */
    /* Whole bands are transposed in less than half the time that tiles of a few windows take, less so from memory. A bias
     * takes a second pass over the outputs. */
    enum { FAR = 4 << 20 };
    const double whole = s->height * s->width * s->channels > FAR / size ? 0.72 : 0.45;
    const bool staged = job->run == 1 && job->pixels.stage_bytes && conv->x->dtype == HC_F32;
    const double apart = job->pixels.copies && job->pixels.together == 1 ? 1.2 : 1; /* rows are transposed one by one */
    const double passes = staged && !in_blocks && (conv->bias || conv->relu) ? 0.3 * answers * (double)s->filters : 0;
    /* two threads move planes as fast as one: each reads what the other wrote (144 @ 56, 384 @ 14, Zen 4, 2026-12) */
    const double moved = hc_conv_moved(conv) * apart * (staged ? whole : 1) * conv->run->n_threads;
    return (hc_conv_work){.products = products,
                          .values = job->run == 1 ? products : 0,
                          .moved = moved + passes,
                          .shared = in_blocks || in_lines ? products : 0,
                          .bytes = panel_floats(job) * size + conv->run->n_threads * job->private_bytes +
                                   job->pixels.bytes + job->pixels.stage_bytes};
}

const char *hc_conv_depthwise_refuses(const hc_convolution *conv) {
    const hc_conv_shape *s = &conv->shape;
    const int64_t run = s->group_channels;
    if ((run != 1 && run != 2 && run != 4 && run != 8) || s->filters != conv->window->groups * run)
        return "it is for groups of 1, 2, 4 or 8 channels and as many filters";
    enum { MOST_ROWS = 4 }; /* of answers, in a block */
    if (s->r * s->s == 0)
        return "there is nothing to sum";
    return hc_wide_rows(conv, (MOST_ROWS - 1) * conv->window->stride[0] + (s->r - 1) * conv->window->dilation[0] + 1);
}

hc_conv_work hc_conv_depthwise_work(const hc_convolution *conv) {
    hc_depthwise_job job;
    return work_of(&job, conv, false);
}

const char *hc_conv_depthwise_rounded_refuses(const hc_convolution *conv) {
    const hc_conv_shape *s = &conv->shape;
    const hc_format *x = conv->activations, *w = conv->w->packed ? &conv->w->packed->format : NULL;
    if (x->m > 0 || (w && w->m > 0 && conv->order == HC_CONV_ROUNDED))
        return "zeros of a pattern are skipped in panels";
    if (conv->order == HC_CONV_ROUNDED)
        return hc_lines_make_codes(conv) || s->group_channels == 1 || conv->window->groups == 1
                   ? hc_conv_depthwise_refuses(conv)
                   : "channels of a group would not lie as the format rounds them";
    if (s->group_channels != 1 || s->filters != conv->window->groups)
        return "scales of taps are for groups of one channel and one filter";
    if (x->group > 0)
        return "x has a scale for every value";
    if (w->group == 0 || hc_integers_of(x, HC_INT_GROUPED).n_limbs != 1 ||
        hc_integers_of(w, HC_INT_GROUPED).n_limbs != 1)
        return "codes are of more than 8 bits, or a filter has one scale";
    return hc_conv_depthwise_refuses(conv);
}

hc_conv_work hc_conv_depthwise_rounded_work(const hc_convolution *conv) {
    hc_depthwise_job job;
    hc_conv_work work = work_of(&job, conv, conv->order == HC_CONV_GROUPED);
    work.bytes += hc_rounded_bytes(conv);
    return work;
}

/* Addresses of the taps of output (p, q), and the step to those of the next outputs. Returns for how many outputs from
 * q on this step holds, at most `most`. */
static int64_t taps_of(const hc_depthwise_job *job, int64_t image, int64_t p, int64_t q, int64_t most,
                       const float **tap, int64_t *step) {
    const hc_pixels *pixels = &job->pixels;
    const hc_conv_shape *s = &job->conv->shape;
    const hc_window *window = job->conv->window;
    const int64_t stride = window->stride[1], across = window->dilation[1], reach = (s->s - 1) * across;
    const int64_t h = p * window->stride[0] - window->pad_before[0], w = q * stride - window->pad_before[1];
    const bool inside = w >= 0 && w + reach < s->width;
    const int64_t n = inside ? hc_min(most, (s->width - 1 - reach - w) / stride + 1) : 1;
    for (int64_t r = 0; r < s->r; r++)
        for (int64_t t = 0; t < s->s; t++, tap++, step++) {
            *tap = hc_pixel(pixels, image, h + r * window->dilation[0], w + t * across);
            *step = *tap == pixels->zeros ? 0 : stride * pixels->pixel_step / (int64_t)sizeof(float);
        }
    return n;
}

static void meet(const hc_depthwise_job *job, const float *const *tap, const int64_t *step, int64_t filter, int64_t n,
                 int64_t count, float *to, int64_t ld) {
    if (job->scales)
        job->scaled(job->taps, tap, step, job->panel + filter, job->scales + filter, job->filters, n, count, to, ld);
    else if (job->run == 1)
        job->kernel(job->taps, tap, step, job->panel + filter, job->filters, n, count, to, ld);
    else
        job->grouped((int)job->run, job->taps, tap, step, job->panel + filter * job->taps * job->run, n, count, to, ld);
}

static void multiply_task(void *context, int64_t task, int thread) {
    const hc_depthwise_job *job = context;
    const hc_pixels *pixels = &job->pixels;
    uint8_t *own = job->private_memory + thread * job->private_bytes;
    const float **tap = (const float **)(void *)own;
    int64_t *step = (int64_t *)(void *)(tap + job->taps);
    float *tile = (float *)(void *)(own + job->tile_at);
    const bool finishes = job->conv->bias || job->conv->relu;
    const int64_t width = job->conv->shape.out_width;
    const int64_t image = task / pixels->n_rows, p = pixels->row + task % pixels->n_rows;
    int64_t n;
    for (int64_t q = 0; q < width; q += n) {
        const int64_t first = task * width + q;
        n = taps_of(job, image, p, q, hc_min(ANSWERS, width - q), tap, step);
        int64_t ld;
        float *place = hc_answers_at(pixels, first, (int)n, 0, &ld);
        if (place && !finishes) {
            meet(job, tap, step, 0, n, job->filters, place, ld);
            continue;
        }
        for (int64_t filter = 0; filter < job->filters; filter += PART) {
            const int64_t part = hc_min(PART, job->filters - filter);
            meet(job, tap, step, filter, n, part, tile, PART);
            hc_write_answers(pixels, first, (int)n, filter, part, tile, PART);
            for (int64_t t = 0; t < job->taps; t++)
                tap[t] += part;
        }
    }
}

/* Rows of outputs of a block: start of the pixels of their windows, at column 0, or NULL for padding; and the
 * outputs. */
typedef struct {
    const char *line[MOST_ROWS];
    float *place; /* address of the first output of filter 0, or NULL if outputs are not contiguous */
    int64_t first, ld, place_row;
    const char *below[MOST_ROWS]; /* the rows of pixels that only the next block needs, at column 0, or NULL */
    int down, rows;
} hc_block_rows;

static hc_block_rows rows_of(const hc_depthwise_job *job, int64_t image, int64_t row, int down) {
    const hc_pixels *pixels = &job->pixels;
    const hc_conv_shape *s = &job->conv->shape;
    const hc_window *window = job->conv->window;
    const int64_t *steps = hc_answer_steps(pixels), size = sizeof(float);
    const int64_t h = (pixels->row + row) * window->stride[0] - window->pad_before[0];
    hc_block_rows rows = {.first = (image * pixels->n_rows + row) * s->out_width,
                          .place_row = steps[2] / size,
                          .down = down,
                          .rows = (down - 1) * (int)window->stride[0] + 3};
    for (int i = 0; i < rows.rows; i++)
        rows.line[i] = h + i >= 0 && h + i < s->height ? (const char *)hc_pixel(pixels, image, h + i, 0) : NULL;
    const int64_t next = h + rows.rows;
    for (int i = 0; i < down * window->stride[0] && job->far; i++)
        rows.below[i] = next + i < s->height ? (const char *)hc_pixel(pixels, image, next + i, 0) : NULL;
    if (steps[2] % size == 0)
        rows.place = hc_answers_at(pixels, rows.first, (int)hc_min(s->out_width, INT32_MAX), 0, &rows.ld);
    return rows;
}

/* Fetches the pixels below those of a block from memory: its rows are too many for the processor to see their order. */
static void fetch_below(const hc_depthwise_job *job, const hc_block_rows *rows, int64_t q, int across) {
    const hc_conv_shape *s = &job->conv->shape;
    const int64_t stride = job->conv->window->stride[1], step = job->pixels.pixel_step;
    const int64_t begin = hc_min(q * stride, s->width), end = hc_min((q + across) * stride, s->width);
    const int64_t bytes = job->filters * (int64_t)sizeof(float);
    for (int i = 0; i < rows->down * stride; i++)
        for (int64_t w = begin; w < end && rows->below[i]; w++)
            for (int64_t at = 0; at < bytes; at += HC_CACHE_LINE)
                __builtin_prefetch(rows->below[i] + w * step + at, 0, 2);
}

/* Computes outputs from column q on, `across` of each row. */
static void meet_block(const hc_depthwise_job *job, const hc_block_rows *rows, int64_t q, int across, float *tile) {
    const hc_convolution *conv = job->conv;
    const hc_pixels *pixels = &job->pixels;
    hc_depthwise3_f32_fn *kernel = job->block->fn.depthwise3_f32;
    const int stride = (int)conv->window->stride[0], columns = (across - 1) * stride + 3;
    const int64_t w = q * stride - conv->window->pad_before[1], width = conv->shape.width, step = pixels->pixel_step;
    const float *x[MOST_ROWS * MOST_ROWS], **to = x;
    for (int i = 0; i < rows->rows; i++, to += columns)
        for (int k = 0; k < columns; k++) {
            const bool inside = rows->line[i] && w + k >= 0 && w + k < width;
            to[k] = inside ? (const float *)(const void *)(rows->line[i] + (w + k) * step) : pixels->zeros;
        }
    float *place = rows->place ? rows->place + q * rows->ld : NULL;
    if (place)
        kernel(stride, rows->down, across, x, job->panel, job->filters, job->filters, place, rows->place_row, rows->ld,
               job->bias, conv->relu);
    for (int64_t filter = 0; filter < job->filters && !place; filter += PART) {
        const int64_t part = hc_min(PART, job->filters - filter);
        kernel(stride, rows->down, across, x, job->panel + filter, job->filters, part, tile, across * PART, PART, NULL,
               false);
        for (int i = 0; i < rows->down; i++)
            hc_write_answers(pixels, rows->first + i * conv->shape.out_width + q, across, filter, part,
                             tile + i * across * PART, PART);
        for (int i = 0; i < rows->rows * columns; i++)
            x[i] += part;
    }
}

/* The largest of 1, 2, 4 that is at most n. */
static int power_of_2(int64_t n) { return n >= 4 ? 4 : n >= 2 ? 2 : 1; }

static void blocks_task(void *context, int64_t task, int thread) {
    const hc_depthwise_job *job = context;
    const hc_pixels *pixels = &job->pixels;
    const int64_t width = job->conv->shape.out_width, tasks = hc_ceil_div(pixels->n_rows, job->rows);
    const int64_t image = task / tasks, begin = task % tasks * job->rows;
    const int64_t end = hc_min(begin + job->rows, pixels->n_rows);
    float *tile = (float *)(void *)(job->private_memory + thread * job->private_bytes + job->tile_at);
    for (int64_t row = begin, down; row < end; row += down) {
        down = power_of_2(hc_min(job->block->mr, end - row));
        const hc_block_rows rows = rows_of(job, image, row, (int)down);
        for (int64_t q = 0, across; q < width; q += across) {
            across = power_of_2(hc_min(job->block->nr, width - q));
            if (job->far)
                fetch_below(job, &rows, q, (int)across);
            meet_block(job, &rows, q, (int)across, tile);
        }
    }
}

/* How many of n outputs a line has. */
static int line_of(int64_t n) { return n >= 7 ? (int)hc_min(n == 14 ? 7 : n, 8) : power_of_2(n); }

/* A row of outputs, channels by parts whose pixels stay in L1. */
static void line_task(void *context, int64_t task, int thread) {
    const hc_depthwise_job *job = context;
    const hc_pixels *pixels = &job->pixels;
    const hc_conv_shape *s = &job->conv->shape;
    const hc_window *window = job->conv->window;
    uint8_t *own = job->private_memory + thread * job->private_bytes;
    const float **x = (const float **)(void *)own, **to = x;
    float *tile = (float *)(void *)(own + job->tile_at);
    const int64_t columns = job->line_columns, stride = window->stride[1], width = s->out_width;
    const int64_t image = task / pixels->n_rows, p = pixels->row + task % pixels->n_rows, first = task * width;
    for (int64_t r = 0; r < s->r; r++)
        for (int64_t k = 0; k < columns; k++)
            *to++ = hc_pixel(pixels, image, p * window->stride[0] - window->pad_before[0] + r * window->dilation[0],
                             k - window->pad_before[1]);
    int64_t ld;
    float *place = hc_answers_at(pixels, first, (int)width, 0, &ld);
    const bool finishes = job->conv->bias || job->conv->relu || !place;
    const int64_t fit = LINE_BYTES / (s->r * columns * (int64_t)sizeof(float)) / 16 * 16;
    /* with 3 taps a row, pixels are read as they lie: parts of them come slowly from memory */
    const int64_t part = s->s == 3 && !finishes ? job->filters : hc_min(PART, hc_max(16, fit));
    for (int64_t filter = 0; filter < job->filters; filter += part) {
        const int64_t count = hc_min(part, job->filters - filter);
        for (int64_t q = 0, n; q < width; q += n) {
            float *answers = finishes ? tile : place + q * ld + filter;
            const int64_t answers_ld = finishes ? PART : ld;
            n = line_of(width - q);
            if (job->scales)
                job->scaled_line((int)s->s, (int)stride, (int)n, s->r, x + q * stride, columns, filter,
                                 job->panel + filter, job->scales + filter, job->filters, count, answers, answers_ld);
            else
                job->line((int)s->s, (int)stride, (int)n, s->r, x + q * stride, columns, filter, job->panel + filter,
                          job->filters, count, answers, answers_ld);
            if (finishes)
                hc_write_answers(pixels, first + q, (int)n, filter, count, tile, PART);
        }
    }
}

/* Convolves floats, or the codes of one image. */
static hc_status run_floats(const hc_convolution *conv, const hc_scaled_taps *taps, hc_error *error) {
    hc_depthwise_job job;
    work_of(&job, conv, taps != NULL);
    const int64_t bias_at = panel_floats(&job) * (taps ? 2 : 1);
    const int64_t floats = bias_at + (job.block && conv->bias ? hc_round_up(job.filters, 16) : 0);
    float *memory = hc_alloc_aligned(floats * (int64_t)sizeof(float) + conv->run->n_threads * job.private_bytes);
    const bool has_memory = hc_pixels_alloc(&job.pixels) && memory;
    job.panel = memory;
    job.private_memory = (uint8_t *)memory + floats * (int64_t)sizeof(float);
    if (has_memory && taps) {
        job.scales = memory + bias_at / 2;
        memcpy(job.panel, taps->codes, (size_t)(job.taps * job.filters) * sizeof(float));
        for (int64_t i = 0; i < job.taps * job.filters; i++)
            job.scales[i] = taps->image_scale * taps->scales[i];
    } else if (has_memory) {
        hc_filter_taps(conv, job.beside, job.panel);
    }
    job.bias = job.block && conv->bias ? memory + bias_at : NULL;
    for (int64_t f = 0; f < job.filters && has_memory && job.bias; f++)
        memcpy(job.bias + f, (const char *)conv->bias->data + f * conv->bias->strides[0], sizeof *job.bias);
    for (int64_t band = 0; has_memory && band < job.pixels.n_bands; band++) {
        hc_pixels_band(&job.pixels, band);
        hc_parallel(conv->run->n_threads, job.pixels.n_images * hc_ceil_div(job.pixels.n_rows, job.rows),
                    job.block  ? blocks_task
                    : job.line ? line_task
                               : multiply_task,
                    &job);
        hc_pixels_end(&job.pixels);
    }
    hc_pixels_free(&job.pixels);
    hc_free_aligned(memory);
    return has_memory ? HC_OK : hc_fail(error, HC_MEMORY, "conv2d: not enough memory for filters");
}

hc_status hc_conv_depthwise_run(const hc_convolution *conv, hc_error *error) { return run_floats(conv, NULL, error); }

/* Images [first, first + n) of the current images. */
static hc_status run_images(const hc_rounded *rounded, int64_t first, int64_t n, const hc_scaled_taps *taps,
                            hc_error *error) {
    hc_view x, out;
    const hc_convolution part = hc_rounded_part(rounded, first, n, &x, &out);
    return run_floats(&part, taps, error);
}

hc_status hc_conv_depthwise_rounded_run(const hc_convolution *conv, hc_error *error) {
    const int64_t floats = conv->shape.r * conv->shape.s * conv->shape.filters;
    const bool codes = conv->order == HC_CONV_GROUPED;
    hc_rounded rounded;
    hc_status status = hc_rounded_begin(&rounded, conv, error);
    float *filters = NULL;
    if (status == HC_OK && codes) {
        filters = hc_alloc_aligned(2 * floats * (int64_t)sizeof(float));
        if (!filters || !hc_filter_codes(conv, filters, filters + floats))
            status = hc_fail(error, HC_MEMORY, "conv2d: not enough memory for filters");
    }
    for (int64_t first = 0; status == HC_OK && first < conv->shape.n; first += rounded.images) {
        const int64_t n = hc_min(rounded.images, conv->shape.n - first);
        status = hc_rounded_images(&rounded, first, n, error);
        if (status == HC_OK && !codes)
            status = run_images(&rounded, 0, n, NULL, error);
        for (int64_t i = 0; status == HC_OK && codes && i < n; i++)
            status = run_images(&rounded, i, 1, &(hc_scaled_taps){filters, filters + floats, rounded.scale[i]}, error);
    }
    hc_free_aligned(filters);
    hc_rounded_free(&rounded);
    return status;
}
