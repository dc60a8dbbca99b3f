/* Convolution by products of nonzeros, which are scattered to their outputs (SCNN: Parashar et al., ISCA 2017, arXiv
 * 1708.04485, sections 3 and 4). For tap (r, s), a block of channels and an input pixel (y, x): every nonzero
 * activation of the pixel is multiplied by the rows of weights of its channel and added to the sums of pixel ((y + pad
 * - r) / stride, (x + pad - s) / stride), for 64 filters at once. Each sum is one fmaf chain from +0 over r, s, c
 * ascending.
 *
 * Memory: lists of the tile's activations (value and channel, by block, row and pixel), panels of weights (r, s, c,
 * filter) and the tile's sums, PART_BYTES each at most, and 48 KiB per thread. Threads own filters and rows of the
 * result. If one pixel's window or 64 filters are too large for this memory, taps are processed one at a time.
 */
#include "kernels/kernel.h"
#include "ops/check.h"
#include "ops/product/operand.h"

#include "base/convert.h"
#include "base/threads.h"

#include <string.h>

/* 64 channels of 64 filters are 16 KiB of weights, half of L1; the sums of 8 rows stay in L2. */
enum { PART_BYTES = 16 << 20, BLOCK = 64, TASK_ROWS = 8, PIECE = 64, PACK_ROWS = 16, PACK_COLUMNS = 256 };
enum { LANES = HC_OUTER_LANES };

typedef struct {
    const hc_conv_shape *shape;
    const hc_window *window;
    const hc_view *x, *w, *out;
    hc_outer_f32_fn *outer;
    hc_pack_x32_fn *pack;
    /* the tile, the box of taps and channels, and the current filters */
    int64_t image, p, q, rows, columns;
    int64_t r, s, c, n_r, n_s, n_c;
    int64_t filter, filters;
    bool first, last; /* box of this tile */
    /* input pixels that they meet */
    int64_t y, x_first, height, width;
    float *values, *panels, *sums, *scratch;
    uint8_t *at;
    int32_t *starts;
    bool guarded;
    /* by thread: smallest magnitude minus 1 as bits, of x and of w; largest of x */
    int32_t small_x[HC_MAX_THREADS], small_w[HC_MAX_THREADS], large_x[HC_MAX_THREADS];
} hc_outer_job;

enum { SCRATCH_FLOATS = (48 << 10) / sizeof(float) };

static float *scratch_of(const hc_outer_job *job, int thread) { return job->scratch + thread * SCRATCH_FLOATS; }

/* Updates the smallest and largest bits with those of |values|; for `small` 0 counts as the largest. */
static void note_bits(const float *values, int64_t count, int32_t *small, int32_t *large) {
    int32_t least = *small, most = *large; /* signed: every processor compares signed integers in vectors */
    for (int64_t i = 0; i < count; i++) {
        const uint32_t bits = hc_f32_bits(values[i]) & 0x7fffffffu;
        const int32_t magnitude = (int32_t)bits, below = (int32_t)((bits - 1) & 0x7fffffffu);
        least = below < least ? below : least;
        most = magnitude > most ? magnitude : most;
    }
    *small = least;
    *large = most;
}

/* A product of 0 changes a sum only if x is not finite or the sum is -0. All sums are multiples of the product of the
 * last places of both sides. If that product is at least float32's smallest number, no value other than 0 rounds to
 * 0. */
static bool must_guard(const hc_outer_job *job) {
    int32_t small_x = INT32_MAX, small_w = INT32_MAX, large_x = 0;
    for (int i = 0; i < HC_MAX_THREADS; i++) {
        small_x = (int32_t)hc_min(job->small_x[i], small_x);
        small_w = (int32_t)hc_min(job->small_w[i], small_w);
        large_x = (int32_t)hc_max(job->large_x[i], large_x);
    }
    enum { BIAS = 127, PLACES = 23, SMALLEST = -149 };
    return large_x >= 0x7f800000 || (small_x >> 23) + (small_w >> 23) < SMALLEST + 2 * (BIAS + PLACES);
}

/* Task: a row of input pixels of one block of channels, as lists. */
static void list_task(void *context, int64_t task, int thread) {
    hc_outer_job *job = context;
    const int64_t block = task / job->height, row = task % job->height;
    const int64_t first = block * BLOCK, channels = hc_min(BLOCK, job->n_c - first);
    const int64_t begin = job->height * job->width * first + row * job->width * channels;
    int32_t *starts = job->starts + task * (job->width + 1);
    float *values = scratch_of(job, thread), *line = values + PIECE * BLOCK;
    uint8_t *at = (uint8_t *)(line + PIECE), counts[PIECE];
    const hc_view *x = job->x;
    const char *data = (const char *)x->data + job->image * x->strides[0] + (job->c + first) * x->strides[1] +
                       (job->y + row) * x->strides[2];
    int64_t end = begin;
    for (int64_t done = 0; done < job->width; done += PIECE) {
        const int64_t pixels = hc_min(PIECE, job->width - done);
        memset(counts, 0, sizeof counts);
        for (int64_t c = 0; c < channels; c++) {
            hc_read_floats(data + c * x->strides[1] + (job->x_first + done) * x->strides[3], x->dtype, x->strides[3],
                           pixels, line);
            if (row + 1 < job->height) /* the values of the next task, which are far away */
                for (int64_t byte = 0; byte < pixels * 4; byte += 64)
                    __builtin_prefetch(data + c * x->strides[1] + (job->x_first + done) * x->strides[3] +
                                       x->strides[2] + byte);
            note_bits(line, pixels, &job->small_x[thread], &job->large_x[thread]);
            for (int64_t i = 0; i < pixels; i++) {
                const int n = counts[i]; /* written even if the next value overwrites it: no branch */
                values[i * BLOCK + n] = line[i];
                at[i * BLOCK + n] = (uint8_t)c;
                counts[i] = (uint8_t)(n + (line[i] != 0.0f));
            }
        }
        for (int64_t i = 0; i < pixels; i++) {
            starts[done + i] = (int32_t)end;
            memcpy(job->values + end, values + i * BLOCK, counts[i] * sizeof *values);
            memcpy(job->at + end, at + i * BLOCK, counts[i]);
            end += counts[i];
        }
    }
    starts[job->width] = (int32_t)end;
}

static int64_t lanes_of(const hc_outer_job *job, int64_t group) {
    return hc_min(LANES, hc_round_up(job->filters - group * LANES, PACK_ROWS));
}

/* Task: the weights of PACK_ROWS filters, a range of channels with all their taps at a time. */
static void pack_task(void *context, int64_t task, int thread) {
    hc_outer_job *job = context;
    const int64_t group = task * PACK_ROWS / LANES, lane = task * PACK_ROWS % LANES, lanes = lanes_of(job, group);
    const int64_t filters = hc_min(PACK_ROWS, job->filters - task * PACK_ROWS);
    const int64_t taps = job->n_r * job->n_s, *strides = job->w->strides;
    const int64_t piece = hc_max(PACK_COLUMNS / hc_max(taps, 1), 1), piece_taps = hc_min(taps, PACK_COLUMNS);
    const bool joined = taps == piece_taps && job->n_s == job->shape->s && job->n_r == job->shape->r &&
                        strides[2] == job->n_s * strides[3] && strides[1] == taps * strides[3];
    float *panel = job->panels + group * LANES * taps * job->n_c + lane;
    float *rows = scratch_of(job, thread), *transposed = rows + PACK_ROWS * PACK_COLUMNS;
    int32_t unused = 0;
    memset(rows, 0, PACK_ROWS * PACK_COLUMNS * sizeof *rows); /* filters that are not there */
    for (int64_t c = 0; c < job->n_c; c += piece)
        for (int64_t first_tap = 0; first_tap < taps; first_tap += piece_taps) {
            const int64_t channels = hc_min(piece, job->n_c - c), some = hc_min(piece_taps, taps - first_tap);
            for (int64_t i = 0; i < filters; i++) {
                float *row = rows + i * PACK_COLUMNS;
                const char *data = (const char *)job->w->data + (job->filter + task * PACK_ROWS + i) * strides[0] +
                                   (job->c + c) * strides[1];
                if (joined)
                    hc_read_floats(data, job->w->dtype, strides[3], channels * taps, row);
                else
                    for (int64_t u = 0; u < channels * some; u++) {
                        const int64_t tap = first_tap + u % some;
                        hc_read_floats(data + u / some * strides[1] + (job->r + tap / job->n_s) * strides[2] +
                                           (job->s + tap % job->n_s) * strides[3],
                                       job->w->dtype, 0, 1, row + u);
                    }
                note_bits(row, channels * some, &job->small_w[thread], &unused);
            }
            job->pack(rows, PACK_COLUMNS * (int64_t)sizeof *rows, PACK_ROWS, channels * some, transposed, PACK_ROWS, 0);
            for (int64_t u = 0; u < channels * some; u++)
                memcpy(panel + ((first_tap + u % some) * job->n_c + c + u / some) * lanes, transposed + u * PACK_ROWS,
                       PACK_ROWS * sizeof *transposed);
        }
}

/* Writes sums by pixel and filter to the result, PACK_ROWS filters at a time, so that few of its cache lines are in
 * use. */
static void write_rows(const hc_outer_job *job, int64_t group, int64_t lanes, int64_t first, int64_t rows,
                       const float *sums, float *transposed) {
    const int64_t filters = hc_min(lanes, job->filters - group * LANES), *strides = job->out->strides;
    char *out = (char *)job->out->data + job->image * strides[0] + (job->filter + group * LANES) * strides[1] +
                (job->p + first) * strides[2] + job->q * strides[3];
    for (int64_t k = 0; k < filters; k += PACK_ROWS)
        for (int64_t u = 0; u < rows * hc_ceil_div(job->columns, PACK_ROWS); u++) {
            const int64_t row = u / hc_ceil_div(job->columns, PACK_ROWS);
            const int64_t q = u % hc_ceil_div(job->columns, PACK_ROWS) * PACK_ROWS;
            const int64_t pixels = hc_min(PACK_ROWS, job->columns - q), some = hc_min(PACK_ROWS, filters - k);
            job->pack(sums + (row * job->columns + q) * lanes + k, lanes * (int64_t)sizeof *sums, (int)pixels, some,
                      transposed, PACK_ROWS, 0);
            char *to = out + k * strides[1] + row * strides[2] + q * strides[3];
            for (int64_t i = 0; i < some; i++)
                if (strides[3] == sizeof *transposed)
                    memcpy(to + i * strides[1], transposed + i * PACK_ROWS, (size_t)pixels * sizeof *transposed);
                else
                    for (int64_t j = 0; j < pixels; j++)
                        hc_store_f32(to + i * strides[1] + j * strides[3], transposed[i * PACK_ROWS + j]);
        }
}

/* Task: TASK_ROWS rows of the tile for up to 64 filters. */
static void sum_task(void *context, int64_t task, int thread) {
    const hc_outer_job *job = context;
    const int64_t bands = hc_ceil_div(job->rows, TASK_ROWS), group = task / bands, lanes = lanes_of(job, group);
    const int64_t first = task % bands * TASK_ROWS, rows = hc_min(TASK_ROWS, job->rows - first);
    const int64_t *stride = job->window->stride, *pad = job->window->pad_before;
    const float *panel = job->panels + group * LANES * job->n_r * job->n_s * job->n_c;
    float *sums = job->sums + (group * LANES * job->rows + first * lanes) * job->columns;
    if (job->first)
        memset(sums, 0, (size_t)(rows * job->columns * lanes) * sizeof *sums);
    for (int64_t tap = 0; tap < job->n_r * job->n_s; tap++, panel += job->n_c * lanes) {
        const int64_t r = job->r + tap / job->n_s, s = job->s + tap % job->n_s;
        /* columns of the result whose tap is inside the image */
        const int64_t left = job->q * stride[1] - pad[1] + s;
        const int64_t begin = left < 0 ? hc_min(hc_ceil_div(-left, stride[1]), job->columns) : 0;
        const int64_t room = job->shape->width - left;
        const int64_t end = room > 0 ? hc_min(hc_ceil_div(room, stride[1]), job->columns) : 0;
        if (begin >= end)
            continue;
        for (int64_t c = 0; c < job->n_c; c += BLOCK)
            for (int64_t row = 0; row < rows; row++) {
                const int64_t y = (job->p + first + row) * stride[0] - pad[0] + r;
                if (y < 0 || y >= job->shape->height)
                    continue;
                const int32_t *starts = job->starts + (c / BLOCK * job->height + y - job->y) * (job->width + 1);
                job->outer(end - begin, starts + left + begin * stride[1] - job->x_first, stride[1], job->values,
                           job->at, panel + c * lanes, (int)lanes, job->guarded,
                           sums + (row * job->columns + begin) * lanes);
            }
    }
    if (job->last)
        write_rows(job, group, lanes, first, rows, sums, scratch_of(job, thread));
}

/* Input pixels [*first, +*size) that `count` windows from `at` on touch, along one dimension. */
static void meet(int64_t at, int64_t count, int64_t stride, int64_t pad, int64_t tap, int64_t taps, int64_t size,
                 int64_t *first, int64_t *length) {
    const int64_t begin = hc_min(hc_max(at * stride - pad + tap, 0), size);
    const int64_t end = hc_min((at + count - 1) * stride - pad + tap + taps, size);
    *first = begin;
    *length = hc_max(end - begin, 0);
}

/* Bytes of the lists of a tile, as a double, which cannot overflow. */
static double list_bytes(const hc_outer_job *job, int64_t rows, int64_t columns) {
    const hc_window *window = job->window;
    const int64_t height = hc_min(job->shape->height, (rows - 1) * window->stride[0] + job->n_r);
    const int64_t width = hc_min(job->shape->width, (columns - 1) * window->stride[1] + job->n_s);
    const double pixels = (double)height * (double)width, channels = (double)job->n_c;
    return pixels * channels * 5 + 4 * ((double)height * (double)(width + 1)) * (channels / BLOCK + 1);
}

static bool tile_fits(const hc_outer_job *job, int64_t rows, int64_t columns) {
    return list_bytes(job, rows, columns) <= PART_BYTES &&
           (double)rows * (double)columns * LANES * sizeof(float) <= PART_BYTES;
}

/* Sizes of tile, box and range of filters, each as large as its memory allows. */
static void choose_sizes(hc_outer_job *job) {
    const hc_conv_shape *s = job->shape;
    const int64_t room = PART_BYTES / (int64_t)sizeof(float);
    job->n_r = s->r, job->n_s = s->s, job->n_c = s->channels;
    job->rows = job->columns = 1;
    if ((double)s->r * (double)s->s * (double)s->channels * LANES > (double)room || !tile_fits(job, 1, 1)) {
        job->n_r = job->n_s = 1;
        job->n_c = hc_min(s->channels, room / LANES);
    }
    for (job->columns = s->out_width; job->columns > 1 && !tile_fits(job, 1, job->columns);)
        job->columns = hc_ceil_div(job->columns, 2);
    for (job->rows = s->out_height; job->rows > 1 && !tile_fits(job, job->rows, job->columns);)
        job->rows = hc_ceil_div(job->rows, 2);
    const int64_t most = hc_max(job->n_r * job->n_s * job->n_c, job->rows * job->columns);
    job->filters = hc_min(s->filters, hc_max(room / hc_max(most, 1) / LANES, 1) * LANES);
}

static void parallel(const hc_run *run, int64_t n_tasks, hc_task *task, hc_outer_job *job) {
    hc_parallel((int)hc_min(hc_min(run->n_threads, HC_MAX_THREADS), n_tasks), n_tasks, task, job);
}

/* One tile of one image and range of filters: all boxes. */
static void sum_tile(const hc_run *run, hc_outer_job *job, bool one_box) {
    const hc_conv_shape *s = job->shape;
    const hc_window *window = job->window;
    const int64_t steps_r = hc_max(s->r, 1), steps_s = hc_max(s->s, 1), steps_c = hc_max(s->channels, 1);
    const int64_t n_r = hc_max(job->n_r, 1), n_s = hc_max(job->n_s, 1), n_c = hc_max(job->n_c, 1), full = job->n_c;
    job->first = true;
    for (job->r = 0; job->r < steps_r; job->r += n_r)
        for (job->s = 0; job->s < steps_s; job->s += n_s)
            for (job->c = 0; job->c < steps_c; job->c += n_c) {
                job->n_c = hc_min(full, s->channels - job->c);
                if (!one_box)
                    parallel(run, hc_ceil_div(job->filters, PACK_ROWS), pack_task, job);
                meet(job->p, job->rows, window->stride[0], window->pad_before[0], job->r, job->n_r, s->height, &job->y,
                     &job->height);
                meet(job->q, job->columns, window->stride[1], window->pad_before[1], job->s, job->n_s, s->width,
                     &job->x_first, &job->width);
                parallel(run, hc_ceil_div(job->n_c, BLOCK) * job->height, list_task, job);
                job->guarded = must_guard(job);
                job->last = job->r + n_r >= steps_r && job->s + n_s >= steps_s && job->c + n_c >= steps_c;
                parallel(run, hc_ceil_div(job->filters, LANES) * hc_ceil_div(job->rows, TASK_ROWS), sum_task, job);
                job->first = false;
                job->n_c = full;
            }
}

static void sum_all(const hc_run *run, hc_outer_job *job) {
    const hc_conv_shape *s = job->shape;
    const int64_t rows = job->rows, columns = job->columns, filters = job->filters;
    const bool one_box = job->n_r == s->r && job->n_s == s->s && job->n_c == s->channels;
    for (job->filter = 0; job->filter < s->filters; job->filter += filters) {
        job->filters = hc_min(filters, s->filters - job->filter);
        if (one_box) {
            job->r = job->s = job->c = 0;
            parallel(run, hc_ceil_div(job->filters, PACK_ROWS), pack_task, job);
        }
        for (job->image = 0; job->image < s->n; job->image++)
            for (job->p = 0; job->p < s->out_height; job->p += rows)
                for (job->q = 0; job->q < s->out_width; job->q += columns) {
                    job->rows = hc_min(rows, s->out_height - job->p);
                    job->columns = hc_min(columns, s->out_width - job->q);
                    sum_tile(run, job, one_box);
                }
    }
}

hc_status hc_conv2d_outer(const hc_run *run, const hc_view *x, const hc_view *w, const hc_window *window,
                          const hc_view *out, hc_error *error) {
    hc_conv_shape shape = {0};
    const hc_operand filters = {.dense = w};
    const hc_status status = hc_check_conv2d(x, &filters, NULL, window, NULL, out, &shape, error);
    if (status != HC_OK || shape.n * shape.filters * shape.out_height * shape.out_width == 0)
        return status;
    hc_outer_job job = {.shape = &shape, .window = window, .x = x, .w = w, .out = out};
    job.outer = HC_PICK(outer_f32, run);
    job.pack = HC_PICK(pack_x32, run);
    for (int i = 0; i < HC_MAX_THREADS; i++)
        job.small_x[i] = job.small_w[i] = INT32_MAX;
    choose_sizes(&job);
    const int64_t threads = hc_min(run->n_threads, HC_MAX_THREADS), size = sizeof(float);
    const int64_t lanes = hc_round_up(job.filters, PACK_ROWS);
    int64_t height, width, first;
    meet(0, job.rows, window->stride[0], 0, 0, job.n_r, shape.height, &first, &height);
    meet(0, job.columns, window->stride[1], 0, 0, job.n_s, shape.width, &first, &width);
    job.values = hc_alloc_aligned(height * width * job.n_c * size);
    job.at = hc_alloc_aligned(height * width * job.n_c);
    job.starts = hc_alloc_aligned(hc_ceil_div(job.n_c, BLOCK) * height * (width + 1) * size);
    job.panels = hc_alloc_aligned(job.n_r * job.n_s * job.n_c * lanes * size);
    job.sums = hc_alloc_aligned(job.rows * job.columns * lanes * size);
    job.scratch = hc_alloc_aligned(threads * SCRATCH_FLOATS * size);
    const bool enough = job.values && job.at && job.starts && job.panels && job.sums && job.scratch;
    if (enough)
        sum_all(run, &job);
    hc_free_aligned(job.values);
    hc_free_aligned(job.at);
    hc_free_aligned(job.starts);
    hc_free_aligned(job.panels);
    hc_free_aligned(job.sums);
    hc_free_aligned(job.scratch);
    return enough ? HC_OK : hc_fail(error, HC_MEMORY, "conv2d_outer: not enough memory for a tile of the image");
}
