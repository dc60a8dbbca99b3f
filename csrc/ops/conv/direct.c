/* Convolution without a copy of any window: a tile is mr windows, which need not be neighbours, times nr filters, one fmaf
 * chain over (r, s, c) each, held in registers from the first tap to the last (kernels/conv/conv.h). A task is some tiles,
 * whose windows are found once, and all panels of filters; or, where all images stay in a cache and all panels would not, a
 * panel, which is packed and met by all tiles before it leaves the cache too.
 *
 * Memory: FILTER_BYTES of panels (one panel at least), and less than 1 MiB a thread: a band of images where they do not lie
 * as a kernel reads them (pixels.h), POINTER_BYTES, and what packing takes.
 */
#include "base/threads.h"
#include "ops/conv/codes.h"
#include "ops/conv/pixels.h"
#include "ops/conv/prepacked.h"

#include <string.h>

enum {
    FILTER_BYTES = 12 << 20, /* as the panels that a product shares */
    L2_BYTES = 1 << 20,      /* what stays there from task to task: all images, or all panels */
    L1_BYTES = 32 << 10,
    POINTER_BYTES = 64 << 10,
    TASK_TILES = 8, /* a panel comes from L2 or L3 for each task: once for 8 x 14 rows is 1 byte a cycle */
    MAX_TILE = 16 * 64,
    PANELS_A_THREAD = 4,
    LANES = 16, /* of filters that are as fast as one */
};

typedef struct {
    const hc_convolution *conv;
    const hc_kernel *kernel;
    hc_filter_panels filters;
    hc_pixels pixels;
    int64_t group, tiles; /* tiles whose windows are found at once: of a task, where tasks are tiles */
    bool by_panels;       /* a task is a panel; a thread has memory for one */
    bool far;             /* answers are beyond the nearer caches */
    bool packed;          /* all panels were packed before */
    int64_t panels_at_once, first_panel, n_panels;
    uint8_t *panels, *private_memory;
    int64_t panels_bytes;
    int64_t private_bytes; /* of one thread: pointers, or what packing takes */
} hc_direct_job;

static hc_conv_work work_of(hc_direct_job *job, const hc_convolution *conv) {
    const hc_kernel *kernel = HC_BEST(direct_f32, conv->run);
    *job = (hc_direct_job){.conv = conv, .kernel = kernel};
    hc_filter_panels_init(&job->filters, conv, kernel);
    hc_pixels_init(&job->pixels, conv, true, 1);
    const int64_t panel_bytes = job->filters.side.limb_bytes, n_threads = conv->run->n_threads;
    job->packed = hc_prepacked_filter_panels(conv, kernel, 0, 0) != NULL;
    job->far = hc_values(conv->out) > L2_BYTES / (int64_t)sizeof(float);
    const int64_t fit = job->packed ? job->filters.panels : hc_max(1, FILTER_BYTES / hc_max(panel_bytes, 1));
    const int64_t line = hc_max(conv->shape.channels * (int64_t)sizeof(float), 1);
    const int64_t pixels = conv->shape.height * conv->shape.width;
    job->by_panels = job->pixels.n_bands == 1 && job->filters.panels >= PANELS_A_THREAD * n_threads &&
                     fit >= n_threads && job->filters.panels > L2_BYTES / 2 / hc_max(panel_bytes, 1) &&
                     pixels <= L2_BYTES / line && conv->shape.n <= L2_BYTES / line / hc_max(pixels, 1);
    job->panels_at_once = job->by_panels ? n_threads : hc_min(job->filters.panels, fit);
    job->panels_bytes = job->packed ? 0 : job->panels_at_once * panel_bytes;
    const int64_t pointers = job->pixels.taps * kernel->mr * (int64_t)sizeof(float *);
    const int64_t tiles = conv->shape.n * conv->shape.out_height * conv->shape.out_width / kernel->mr;
    /* Four tasks a thread at least, to end together. */
    int64_t even = n_threads == 1 ? TASK_TILES : tiles / (4 * n_threads);
    if (job->filters.panels * panel_bytes <= L2_BYTES / 4)
        even = hc_min(even, hc_max(2, L1_BYTES / 2 / (kernel->mr * line)));
    job->tiles = hc_max(1, hc_min(hc_min(TASK_TILES, POINTER_BYTES / pointers), even));
    job->private_bytes = hc_round_up(hc_max(job->tiles * pointers, hc_pack_scratch()), HC_CACHE_LINE);
    const double answers = (double)conv->shape.n * (double)(conv->shape.out_height * conv->shape.out_width);
    const int64_t filled = hc_round_up(job->filters.filters, LANES) * conv->window->groups;
    return (hc_conv_work){answers * (double)filled * (double)job->filters.columns,
                          job->panels_bytes + n_threads * job->private_bytes + job->pixels.bytes};
}

const char *hc_conv_direct_refuses(const hc_convolution *conv) {
    const hc_conv_shape *s = &conv->shape;
    if (conv->activations)
        return hc_direct_codes_refuse(conv);
    return s->r * s->s * s->group_channels == 0 ? "there is nothing to sum" : NULL;
}

hc_conv_work hc_conv_direct_work(const hc_convolution *conv) {
    if (conv->activations)
        return hc_direct_codes_work(conv);
    hc_direct_job job;
    return work_of(&job, conv);
}

/* Panels of the group at hand that were packed before. */
static const float *packed_panel(const hc_direct_job *job, int64_t panel) {
    return hc_prepacked_filter_panels(job->conv, job->kernel, 0, job->group) +
           panel * job->filters.side.limb_bytes / (int64_t)sizeof(float);
}

static float *panel_at(const hc_direct_job *job, int64_t place) {
    return (float *)(void *)(job->panels + place * job->filters.side.limb_bytes);
}

static void pack_task(void *context, int64_t task, int thread) {
    const hc_direct_job *job = context;
    hc_filter_panel(&job->filters, job->first_panel + task, panel_at(job, task),
                    job->private_memory + thread * job->private_bytes);
}

/* Lines of a tile of answers that is written soon, so that they arrive while it is summed. */
static void fetch(const float *tile, int n, int64_t columns, int64_t ld) {
    for (int i = 0; i < n; i++, tile += ld)
        for (int64_t j = 0; j < columns; j += HC_CACHE_LINE / (int64_t)sizeof *tile)
            __builtin_prefetch(tile + j, 1);
}

/* Answers [first, first + answers), at most job->tiles tiles, and n_panels panels, the first of which is panel `panel` of the
 * group and lies at b. */
static void multiply(const hc_direct_job *job, int64_t first, int64_t answers, int64_t panel, int64_t n_panels,
                     const float *b, const float **rows) {
    const hc_pixels *pixels = &job->pixels;
    const int mr = job->kernel->mr, nr = job->kernel->nr;
    const int64_t pointers = pixels->taps * mr;
    float *place[TASK_TILES]; /* of filter 0 */
    int64_t lds[TASK_TILES];
    for (int64_t t = 0; t * mr < answers; t++) {
        const int64_t n = hc_min(mr, answers - t * mr);
        hc_windows(pixels, job->group * job->conv->shape.group_channels, first + t * mr, n, mr, rows + t * pointers);
        place[t] = hc_answers_at(pixels, first + t * mr, (int)n, 0, &lds[t]);
    }
    const bool finishes = job->conv->bias || job->conv->relu;
    for (int64_t end = panel + n_panels; panel < end; panel++, b += job->filters.side.limb_bytes / (int64_t)sizeof *b) {
        const int64_t column = panel * nr, columns = hc_min(nr, job->filters.filters - column);
        const int64_t filter = job->filters.first + column;
        for (int64_t t = 0; t * mr < answers; t++) {
            const int n = (int)hc_min(mr, answers - t * mr);
            float own[MAX_TILE];
            const int64_t ld = place[t] ? lds[t] : nr;
            float *tile = place[t] ? place[t] + filter : own;
            if (job->far && place[t])
                fetch(tile, n, columns, ld);
            job->kernel->fn.direct_f32(pixels->taps, pixels->run, rows + t * pointers, b, n, (int)columns, tile, ld);
            if (tile == own || finishes)
                hc_write_answers(pixels, first + t * mr, n, filter, columns, tile, ld);
        }
    }
}

static void tiles_task(void *context, int64_t task, int thread) {
    const hc_direct_job *job = context;
    const int64_t at_once = job->tiles * job->kernel->mr, first = task * at_once;
    multiply(job, first, hc_min(at_once, job->pixels.answers - first), job->first_panel, job->n_panels,
             job->packed ? packed_panel(job, job->first_panel) : panel_at(job, 0),
             (const float **)(void *)(job->private_memory + thread * job->private_bytes));
}

static void panel_task(void *context, int64_t task, int thread) {
    const hc_direct_job *job = context;
    const int64_t at_once = job->tiles * job->kernel->mr;
    uint8_t *memory = job->private_memory + thread * job->private_bytes;
    const float *panel = job->packed ? packed_panel(job, task) : panel_at(job, thread);
    if (!job->packed)
        hc_filter_panel(&job->filters, task, panel_at(job, thread), memory);
    for (int64_t first = 0; first < job->pixels.answers; first += at_once)
        multiply(job, first, hc_min(at_once, job->pixels.answers - first), task, 1, panel,
                 (const float **)(void *)memory);
}

/* All panels of a group, as many at once as there is memory for. */
static void tiles_by_panels(hc_direct_job *job, int n_threads) {
    for (job->first_panel = 0; job->first_panel < job->filters.panels; job->first_panel += job->panels_at_once) {
        job->n_panels = hc_min(job->panels_at_once, job->filters.panels - job->first_panel);
        if (!job->packed)
            hc_parallel(n_threads, job->n_panels, pack_task, job);
        for (int64_t band = 0; band < job->pixels.n_bands; band++) {
            hc_pixels_band(&job->pixels, band);
            hc_parallel(n_threads, hc_ceil_div(job->pixels.answers, job->tiles * job->kernel->mr), tiles_task, job);
        }
    }
}

hc_status hc_conv_direct_run(const hc_convolution *conv, hc_error *error) {
    if (conv->activations)
        return hc_direct_codes_run(conv, error);
    hc_direct_job job;
    work_of(&job, conv);
    const int n_threads = conv->run->n_threads;
    job.panels = hc_alloc_aligned(hc_max(job.panels_bytes, HC_CACHE_LINE) + n_threads * job.private_bytes);
    const bool has_memory = hc_pixels_alloc(&job.pixels) && job.panels;
    job.private_memory = job.panels + hc_max(job.panels_bytes, HC_CACHE_LINE);
    if (has_memory && job.by_panels)
        hc_pixels_band(&job.pixels, 0);
    for (job.group = 0; has_memory && job.group < conv->window->groups; job.group++) {
        hc_filter_panels_group(&job.filters, job.group);
        if (job.by_panels)
            hc_parallel(n_threads, job.filters.panels, panel_task, &job);
        else
            tiles_by_panels(&job, n_threads);
    }
    hc_pixels_free(&job.pixels);
    hc_free_aligned(job.panels);
    return has_memory ? HC_OK : hc_fail(error, HC_MEMORY, "conv2d: no memory for panels of filters");
}
