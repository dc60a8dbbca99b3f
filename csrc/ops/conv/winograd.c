/* Winograd's convolution of 3 x 3, stride 1 (Lavin, Gray, CVPR 2016): y = A^T [sum_c (G g G^T) (B^T d B)] A, tiles of m x m
 * answers from n x n pixels, n = m + 2. Each of the n^2 values of a transformed tile is a product over the channels: one
 * fmaf chain, by the kernel of `direct` with one tap. heterocompute/reference/winograd.py is the definition of every bit.
 *
 * A task transforms some groups of mr tiles, then meets a panel of transformed filters at a time: the sums of mr tiles and nr
 * filters are transformed back while they are in the nearest cache. Where all transformed tiles fit ALL_TILES_BYTES, a task
 * is a panel instead, transformed and met by all tiles before it leaves the cache.
 *
 * Memory: FILTER_BYTES of transformed filters (one panel at least), shared, or a panel a thread and ALL_TILES_BYTES; a thread
 * has TILE_BYTES of transformed tiles (mr tiles at least), 64 KiB or, for m = 6, 115 KiB of sums, a panel of filters while
 * they are packed, and its part of a band (pixels.h). Nothing grows with the batch.
 */
#include "base/threads.h"
#include "ops/conv/pixels.h"
#include "ops/conv/prepacked.h"

#include <string.h>

enum {
    FILTER_BYTES = 16 << 20,
    TILE_BYTES = 1 << 20,
    ALL_TILES_BYTES = 4 << 20,
    PANELS_A_THREAD = 4,
    MOST_PANEL = 64 << 20, /* of one panel of filters */
    MAX_PIXELS = 64,       /* n^2 of m = 6 */
    MAX_NR = 64,
};

typedef struct {
    const hc_convolution *conv;
    int m, n;
    const hc_kernel *kernel;
    hc_winograd_input_f32_fn *input;
    hc_winograd_output_f32_fn *output;
    hc_filter_panels filters;
    hc_pixels pixels;
    int64_t down, across;  /* tiles of the band at hand, of one image */
    int64_t group, groups; /* of channels; of tiles of a task */
    int64_t tile_ld;       /* floats from tile to tile */
    bool packed;           /* all panels were packed before */
    bool by_panels;        /* a task is a panel; a thread has memory for one, and all tiles are kept */
    float *tiles;          /* by_panels: those of each task, task_floats */
    int64_t task_floats;
    int64_t panel_floats, panels_at_once, first_panel, n_panels;
    float *panels, *private_memory;
    int64_t tiles_at, shared_floats, private_floats, sums_at;
} hc_winograd_job;

static hc_conv_work work_of(hc_winograd_job *job, const hc_convolution *conv, int m) {
    const hc_conv_shape *s = &conv->shape;
    const hc_kernel *kernel = HC_BEST(direct_f32, conv->run);
    *job = (hc_winograd_job){.conv = conv, .m = m, .n = m + 2, .kernel = kernel};
    job->input = HC_PICK(winograd_input_f32, conv->run);
    job->output = HC_PICK(winograd_output_f32, conv->run);
    hc_filter_panels_init(&job->filters, conv, kernel);
    hc_pixels_init(&job->pixels, conv, false, m);
    const int64_t places = job->n * job->n, channels = s->group_channels, size = sizeof(float);
    const int64_t tiles = hc_ceil_div(s->out_height, m) * hc_ceil_div(s->out_width, m);
    job->panel_floats = hc_any_filter_floats(&job->filters, m);
    job->packed = hc_prepacked_filter_panels(conv, kernel, m, 0) != NULL;
    job->panels_at_once = job->filters.panels;
    if (!job->packed)
        job->panels_at_once = hc_min(job->panels_at_once, hc_max(1, FILTER_BYTES / (job->panel_floats * size)));
    /* Rows of a power of two would meet in few sets of the nearest cache. */
    job->tile_ld = hc_round_up(channels, 16) + 16;
    const int64_t group_floats = places * kernel->mr * job->tile_ld;
    job->groups = hc_min(TILE_BYTES / (group_floats * size), s->n * tiles / kernel->mr / (4 * conv->run->n_threads));
    job->groups = hc_max(job->groups, 1);
    job->task_floats = job->groups * group_floats;
    const int64_t tasks = hc_ceil_div(s->n * tiles, job->groups * kernel->mr);
    job->by_panels = job->pixels.n_bands == 1 && job->filters.panels >= PANELS_A_THREAD * conv->run->n_threads &&
                     job->panels_at_once >= conv->run->n_threads &&
                     tasks <= ALL_TILES_BYTES / (job->task_floats * size);
    const int64_t kept = job->by_panels ? tasks * job->task_floats : 0;
    job->panels_at_once = job->by_panels ? conv->run->n_threads : job->panels_at_once;
    job->sums_at = job->by_panels ? 0 : job->task_floats;
    const int64_t packing = hc_round_up(job->filters.side.limb_bytes + hc_pack_scratch(), HC_CACHE_LINE) / size;
    job->private_floats = hc_round_up(hc_max(job->sums_at + places * kernel->mr * kernel->nr, packing), 16);
    job->tiles_at = job->packed ? 0 : hc_round_up(job->panels_at_once * job->panel_floats, 16);
    job->shared_floats = job->tiles_at + kept;
    /* A value of a tile or a filter that is transformed takes as long as so many products, on an AMD EPYC of family 26 (Zen
     * 5), one thread, 2026-11: 27 to 41 and 40 to 55, of 64 to 256 channels. */
    enum { TILE_VALUE = 36, FILTER_VALUE = 40, LANES = 16 /* of filters that are as fast as one */ };
    const double all = (double)s->n * (double)tiles, c = (double)channels, k = (double)s->filters;
    const double filled = (double)(hc_round_up(job->filters.filters, LANES) * conv->window->groups);
    const double values = TILE_VALUE * all * ((double)s->channels + k) + FILTER_VALUE * k * c;
    return (hc_conv_work){(double)places * (all * c * filled + values),
                          (job->shared_floats + conv->run->n_threads * job->private_floats) * size + job->pixels.bytes};
}

static const char *refuses(const hc_convolution *conv, int m) {
    const hc_conv_shape *s = &conv->shape;
    const hc_window *window = conv->window;
    if (conv->activations)
        return "it multiplies floats, and x is to be quantized";
    if (s->r != 3 || s->s != 3 || window->stride[0] != 1 || window->stride[1] != 1 || window->dilation[0] != 1 ||
        window->dilation[1] != 1)
        return "it is for filters of 3 x 3 with stride and dilation 1";
    if (s->group_channels == 0)
        return "there is nothing to sum";
    if (s->group_channels > MOST_PANEL / ((m + 2) * (m + 2) * MAX_NR * (int64_t)sizeof(float)))
        return "transformed filters of so many channels take too much memory";
    return NULL;
}

/* Panels of the group at hand that were packed before. */
static const float *packed_panel(const hc_winograd_job *job, int64_t panel) {
    return hc_prepacked_filter_panels(job->conv, job->kernel, job->m, job->group) + panel * job->panel_floats;
}

static void pack_panel(const hc_winograd_job *job, int64_t panel, float *to, int thread) {
    hc_any_filter_panel(&job->filters, job->m, panel, to, job->private_memory + thread * job->private_floats);
}

static void pack_task(void *context, int64_t task, int thread) {
    const hc_winograd_job *job = context;
    pack_panel(job, job->first_panel + task, job->panels + task * job->panel_floats, thread);
}

/* Tile `tile` of the band: its image in the band, first row and column of its answers. */
typedef struct {
    int64_t image, p, q;
} hc_tile_place;

static hc_tile_place place_of(const hc_winograd_job *job, int64_t tile) {
    const int64_t row = tile / job->across;
    return (hc_tile_place){row / job->down, job->pixels.row + row % job->down * job->m, tile % job->across * job->m};
}

static void transform_tile(const hc_winograd_job *job, int64_t tile, float *to, int64_t step) {
    const hc_window *window = job->conv->window;
    const hc_tile_place at = place_of(job, tile);
    const float *pixel[MAX_PIXELS];
    const int64_t channel = job->group * job->conv->shape.group_channels;
    for (int i = 0; i < job->n; i++)
        for (int j = 0; j < job->n; j++)
            pixel[i * job->n + j] =
                hc_pixel(&job->pixels, at.image, at.p - window->pad_before[0] + i, at.q - window->pad_before[1] + j) +
                channel;
    job->input(job->m, pixel, job->conv->shape.group_channels, to, step);
}

/* The sums of one tile, transformed back, into the answer: in place, or by way of `own`. */
static void write_tile(const hc_winograd_job *job, int64_t tile, const float *sums, int64_t filter, int64_t columns,
                       const float *bias) {
    const hc_convolution *conv = job->conv;
    const hc_view *out = conv->out;
    const hc_tile_place at = place_of(job, tile);
    const int64_t rows = hc_min(job->m, job->pixels.row + job->pixels.n_rows - at.p);
    const int64_t width = hc_min(job->m, conv->shape.out_width - at.q);
    const bool in_place = out->strides[1] == sizeof(float);
    char *to = (char *)out->data + (job->pixels.image + at.image) * out->strides[0] + filter * out->strides[1] +
               at.p * out->strides[2] + at.q * out->strides[3];
    float own[36 * MAX_NR], *answer[36] = {NULL};
    for (int64_t p = 0; p < rows; p++)
        for (int64_t q = 0; q < width; q++)
            answer[p * job->m + q] = in_place ? (float *)(void *)(to + p * out->strides[2] + q * out->strides[3])
                                              : own + (p * job->m + q) * MAX_NR;
    job->output(job->m, sums, job->kernel->mr * job->kernel->nr, columns, bias, conv->relu, answer);
    if (in_place)
        return;
    const bool side_by_side = out->strides[3] == sizeof(float) && out->strides[1] > 0 && out->strides[1] % 4 == 0 &&
                              out->strides[1] / 4 <= INT32_MAX;
    for (int64_t p = 0; p < rows; p++, to += out->strides[2]) {
        const float *from = own + p * job->m * MAX_NR;
        if (side_by_side)
            HC_PICK(pack_x32, conv->run)
        (from, MAX_NR * 4, (int)width, columns, to, (int)(out->strides[1] / 4), 0);
        for (int64_t q = 0; q < width && !side_by_side; q++)
            for (int64_t j = 0; j < columns; j++)
                memcpy(to + q * out->strides[3] + j * out->strides[1], from + q * MAX_NR + j, sizeof(float));
    }
}

/* The tiles of task `task`: their first, and how many. */
static int64_t tiles_of(const hc_winograd_job *job, int64_t task, int64_t *first) {
    const int64_t most = job->groups * job->kernel->mr;
    *first = task * most;
    return hc_min(most, job->pixels.n_images * job->down * job->across - *first);
}

static void transform_tiles(const hc_winograd_job *job, int64_t task, float *v) {
    int64_t first;
    const int64_t tiles = tiles_of(job, task, &first), step = job->groups * job->kernel->mr * job->tile_ld;
    for (int64_t t = 0; t < tiles; t++)
        transform_tile(job, first + t, v + t * job->tile_ld, step);
}

/* The tiles of a task, transformed, times the panels [panel, panel + n_panels) of the group, of which the first lies at u. */
static void multiply(const hc_winograd_job *job, int64_t task, const float *v, int64_t panel, int64_t n_panels,
                     const float *u, float *sums) {
    const hc_conv_shape *s = &job->conv->shape;
    const int mr = job->kernel->mr, nr = job->kernel->nr, places = job->n * job->n;
    int64_t first;
    const int64_t tiles = tiles_of(job, task, &first), place_floats = job->groups * mr * job->tile_ld;
    for (const int64_t end = panel + n_panels; panel < end; panel++, u += job->panel_floats) {
        const int64_t column = panel * nr, columns = hc_min(nr, job->filters.filters - column);
        const int64_t filter = job->filters.first + column;
        float bias[MAX_NR];
        for (int64_t j = 0; j < columns && job->conv->bias; j++)
            memcpy(bias + j, (const char *)job->conv->bias->data + (filter + j) * job->conv->bias->strides[0],
                   sizeof(float));
        for (int64_t t = 0; t < tiles; t += mr) {
            const int n = (int)hc_min(mr, tiles - t);
            for (int place = 0; place < places; place++) {
                const float *rows[16];
                for (int i = 0; i < n; i++)
                    rows[i] = v + place * place_floats + (t + i) * job->tile_ld;
                job->kernel->fn.direct_f32(1, s->group_channels, rows, u + place * s->group_channels * nr, n,
                                           sums + place * mr * nr, nr);
            }
            for (int i = 0; i < n; i++)
                write_tile(job, first + t + i, sums + i * nr, filter, columns, job->conv->bias ? bias : NULL);
        }
    }
}

static void tiles_task(void *context, int64_t task, int thread) {
    const hc_winograd_job *job = context;
    float *v = job->private_memory + thread * job->private_floats;
    transform_tiles(job, task, v);
    const float *u = job->packed ? packed_panel(job, job->first_panel) : job->panels;
    multiply(job, task, v, job->first_panel, job->n_panels, u, v + job->sums_at);
}

static void kept_task(void *context, int64_t task, int thread) {
    (void)thread;
    const hc_winograd_job *job = context;
    transform_tiles(job, task, job->tiles + task * job->task_floats);
}

static void panel_task(void *context, int64_t task, int thread) {
    const hc_winograd_job *job = context;
    float *own = job->panels + thread * job->panel_floats;
    if (!job->packed)
        pack_panel(job, task, own, thread);
    const float *u = job->packed ? packed_panel(job, task) : own;
    int64_t first;
    for (int64_t t = 0; tiles_of(job, t, &first) > 0; t++)
        multiply(job, t, job->tiles + t * job->task_floats, task, 1, u,
                 job->private_memory + thread * job->private_floats);
}

static int64_t begin_band(hc_winograd_job *job, int64_t band) {
    hc_pixels_band(&job->pixels, band);
    job->down = hc_ceil_div(job->pixels.n_rows, job->m);
    job->across = hc_ceil_div(job->conv->shape.out_width, job->m);
    return hc_ceil_div(job->pixels.n_images * job->down * job->across, job->groups * job->kernel->mr);
}

/* All panels of a group, as many at once as there is memory for. */
static void tiles_by_panels(hc_winograd_job *job, int n_threads) {
    for (job->first_panel = 0; job->first_panel < job->filters.panels; job->first_panel += job->panels_at_once) {
        job->n_panels = hc_min(job->panels_at_once, job->filters.panels - job->first_panel);
        if (!job->packed)
            hc_parallel(n_threads, job->n_panels, pack_task, job);
        for (int64_t band = 0; band < job->pixels.n_bands; band++) {
            const int64_t tasks = begin_band(job, band);
            hc_parallel(n_threads, tasks, tiles_task, job);
        }
    }
}

static hc_status run_winograd(const hc_convolution *conv, int m, hc_error *error) {
    hc_winograd_job job;
    work_of(&job, conv, m);
    const int n_threads = conv->run->n_threads;
    job.panels = hc_alloc_aligned((job.shared_floats + n_threads * job.private_floats) * (int64_t)sizeof(float));
    const bool has_memory = hc_pixels_alloc(&job.pixels) && job.panels;
    job.tiles = job.panels + job.tiles_at;
    job.private_memory = job.panels + job.shared_floats;
    const int64_t tasks = has_memory && job.by_panels ? begin_band(&job, 0) : 0;
    for (job.group = 0; has_memory && job.group < conv->window->groups; job.group++) {
        hc_filter_panels_group(&job.filters, job.group);
        if (job.by_panels) {
            hc_parallel(n_threads, tasks, kept_task, &job);
            hc_parallel(n_threads, job.filters.panels, panel_task, &job);
        } else {
            tiles_by_panels(&job, n_threads);
        }
    }
    hc_pixels_free(&job.pixels);
    hc_free_aligned(job.panels);
    return has_memory ? HC_OK : hc_fail(error, HC_MEMORY, "conv2d: no memory for transformed filters");
}

#define HC_WINOGRAD(m)                                                                                                 \
    const char *hc_conv_winograd##m##_refuses(const hc_convolution *conv) { return refuses(conv, m); }                 \
    hc_conv_work hc_conv_winograd##m##_work(const hc_convolution *conv) {                                              \
        hc_winograd_job job;                                                                                           \
        return work_of(&job, conv, m);                                                                                 \
    }                                                                                                                  \
    hc_status hc_conv_winograd##m##_run(const hc_convolution *conv, hc_error *error) {                                 \
        return run_winograd(conv, m, error);                                                                           \
    }
HC_WINOGRAD(2)
HC_WINOGRAD(4)
HC_WINOGRAD(6)
