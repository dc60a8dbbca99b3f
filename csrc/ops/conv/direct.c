/* Convolution without copying windows. A tile is mr windows, which need not be neighbours, times nr filters: one fmaf
 * chain over (r, s, c) each, kept in registers from the first tap to the last (kernels/conv/conv.h). A task is some
 * tiles, whose windows are found once for all groups, times all panels of filters. If all images fit into a cache and
 * all panels do not, a task is a panel instead, which is packed and multiplied by all tiles before it leaves the cache.
 *
 * Few windows times dense filters pack nothing (direct/few.h). Quantized images are rounded to floats first
 * (quantized/rounded.h).
 *
 * Memory: FILTER_BYTES of panels (at least one panel), and less than 1 MiB per thread: a band of images if kernels
 * cannot read them in place (pixels.h), POINTER_BYTES, and the memory for packing.
 */
#include "base/threads.h"
#include "ops/conv/direct/few.h"
#include "ops/conv/filters.h"
#include "ops/conv/pixels.h"
#include "ops/conv/prepacked.h"
#include "ops/conv/quantized/rounded.h"

#include <string.h>

enum {
    FILTER_BYTES = 12 << 20, /* as much as the shared panels of a matmul */
    L2_BYTES = 1 << 20,      /* stays in L2 from task to task: all images, or all panels */
    /* outputs of at least this size are prefetched; with less, prefetching is 1 to 3 % slower (Zen 4, 2026-11) */
    FAR_BYTES = 8 << 20,
    L1_BYTES = 32 << 10,
    POINTER_BYTES = 64 << 10,
    TASK_TILES = 8, /* each task reads a panel from L2 or L3: once per 8 x 14 rows is 1 byte per cycle */
    MAX_TILE = 16 * 64,
    PANELS_A_THREAD = 4,
    LANES = 16, /* filters that take as long as one */
};

typedef struct {
    const hc_convolution *conv;
    const hc_kernel *kernel;
    hc_filter_panels filters;
    hc_pixels pixels;
    int64_t group, tiles; /* tiles whose windows are found together: those of a task, if tasks are tiles */
    int64_t groups;       /* groups from `group` on that use the same windows */
    bool by_panels;       /* a task is a panel; each thread has memory for one */
    bool far;             /* outputs are not in L1 or L2 */
    hc_filter_form form;
    bool packed; /* all panels were packed before */
    /* panels are read in the order of the first packing step, (channel, tap): with few tiles sorting takes longer than
     * it saves */
    bool lines;
    int64_t tap_step, step; /* of panels */
    int64_t panels_at_once, first_panel, n_panels;
    uint8_t *panels, *private_memory;
    int64_t panels_bytes;
    int64_t private_bytes; /* of one thread: pointers, or the memory for packing */
} hc_direct_job;

static hc_conv_work work_of(hc_direct_job *job, const hc_convolution *conv) {
    const hc_kernel *kernel = HC_BEST(direct_f32, conv->run);
    *job = (hc_direct_job){.conv = conv, .kernel = kernel};
    hc_filter_panels_init(&job->filters, conv, kernel);
    hc_pixels_init(&job->pixels, conv, true, 1);
    const int64_t panel_bytes = job->filters.side.limb_bytes, n_threads = conv->run->n_threads;
    job->form = (hc_filter_form){.kernel = (intptr_t)kernel,
                                 .groups = conv->window->groups,
                                 .panels = job->filters.panels,
                                 .panel_floats = panel_bytes / (int64_t)sizeof(float)};
    job->packed = hc_prepacked_panels_of(conv, &job->form, 0) != NULL;
    job->far = hc_values(conv->out) > FAR_BYTES / (int64_t)sizeof(float);
    const int64_t fit = job->packed ? job->filters.panels : hc_max(1, FILTER_BYTES / hc_max(panel_bytes, 1));
    const int64_t line = hc_max(conv->shape.channels * (int64_t)sizeof(float), 1);
    const int64_t pixels = conv->shape.height * conv->shape.width;
    job->by_panels = job->pixels.n_bands == 1 && job->filters.panels >= PANELS_A_THREAD * n_threads &&
                     fit >= n_threads && job->filters.panels > L2_BYTES / 2 / hc_max(panel_bytes, 1) &&
                     pixels <= L2_BYTES / line && conv->shape.n <= L2_BYTES / line / hc_max(pixels, 1);
    job->lines = job->by_panels && !job->packed && !job->pixels.joins && job->pixels.taps > 1 &&
                 hc_filters_have_lines(&job->filters);
    job->tap_step = job->lines ? kernel->nr : job->pixels.run * kernel->nr;
    job->step = job->lines ? job->pixels.taps * kernel->nr : kernel->nr;
    job->panels_at_once = job->by_panels ? n_threads : hc_min(job->filters.panels, fit);
    const int64_t together =
        job->packed ? conv->window->groups : hc_min(conv->window->groups, fit / job->filters.panels);
    job->groups = job->by_panels ? 1 : hc_max(1, together);
    job->panels_at_once *= job->groups;
    job->panels_bytes = job->packed ? 0 : job->panels_at_once * panel_bytes;
    const int64_t pointers = job->pixels.taps * kernel->mr * (int64_t)sizeof(float *);
    const int64_t tiles = conv->shape.n * conv->shape.out_height * conv->shape.out_width / kernel->mr;
    /* At least four tasks per thread, so that threads end at the same time. */
    int64_t even = n_threads == 1 ? TASK_TILES : tiles / (4 * n_threads);
    if (job->filters.panels * panel_bytes <= L2_BYTES / 4)
        even = hc_min(even, hc_max(2, L1_BYTES / 2 / (kernel->mr * hc_max(line / conv->window->groups, 1))));
    job->tiles = hc_max(1, hc_min(hc_min(TASK_TILES, POINTER_BYTES / pointers), even));
    job->private_bytes = hc_round_up(hc_max(job->tiles * pointers, hc_pack_scratch()), HC_CACHE_LINE);
    const double answers = (double)conv->shape.n * (double)(conv->shape.out_height * conv->shape.out_width);
    const int64_t filled = hc_round_up(job->filters.filters, LANES) * conv->window->groups;
    return (hc_conv_work){.products = answers * (double)filled * (double)job->filters.columns,
                          .moved = hc_conv_moved(conv),
                          .bytes = job->panels_bytes + n_threads * job->private_bytes + job->pixels.bytes};
}

const char *hc_conv_direct_refuses(const hc_convolution *conv) {
    const hc_conv_shape *s = &conv->shape;
    if (s->r * s->s * s->group_channels == 0)
        return "there is nothing to sum";
    return hc_wide_rows(conv, (s->r - 1) * conv->window->dilation[0] + 1);
}

hc_conv_work hc_conv_direct_work(const hc_convolution *conv) {
    hc_direct_job job;
    return work_of(&job, conv);
}

/* Prepacked panels of a group. */
static const float *packed_panel(const hc_direct_job *job, int64_t group, int64_t panel) {
    return hc_prepacked_panels_of(job->conv, &job->form, group) + panel * job->form.panel_floats;
}

static float *panel_at(const hc_direct_job *job, int64_t place) {
    return (float *)(void *)(job->panels + place * job->filters.side.limb_bytes);
}

/* Number of current groups, from job->group on. */
static int64_t groups_at_hand(const hc_direct_job *job) {
    return hc_min(job->groups, job->conv->window->groups - job->group);
}

static void pack_task(void *context, int64_t task, int thread) {
    const hc_direct_job *job = context;
    const int64_t group = task / job->n_panels, panel = job->first_panel + task % job->n_panels;
    uint8_t *scratch = job->private_memory + thread * job->private_bytes;
    if (group == 0) {
        hc_filter_panel(&job->filters, panel, panel_at(job, task), scratch);
        return;
    }
    hc_filter_panels filters;
    hc_filter_panels_init(&filters, job->conv, job->kernel);
    hc_filter_panels_group(&filters, job->group + group);
    hc_filter_panel(&filters, panel, panel_at(job, task), scratch);
}

/* Windows of at most job->tiles tiles in a group, and the address of filter 0 of their outputs, or NULL. */
typedef struct {
    int64_t first, answers;
    const float **rows; /* per tile: one pointer per tap and window */
    float *place[TASK_TILES];
    int64_t ld[TASK_TILES];
} hc_direct_windows;

static hc_direct_windows find_windows(const hc_direct_job *job, int64_t first, uint8_t *memory) {
    const hc_pixels *pixels = &job->pixels;
    const int64_t mr = job->kernel->mr, answers = hc_min(job->tiles * mr, pixels->answers - first);
    hc_direct_windows w = {.first = first, .answers = answers, .rows = (const float **)(void *)memory};
    for (int64_t t = 0; t * mr < answers; t++) {
        const int64_t n = hc_min(mr, answers - t * mr);
        hc_windows(pixels, job->group * job->conv->shape.group_channels, first + t * mr, n, (int)mr,
                   w.rows + t * pixels->taps * mr);
        w.place[t] = hc_answers_at(pixels, first + t * mr, (int)n, 0, &w.ld[t]);
    }
    return w;
}

/* Moves the same windows to the next group. */
static void go_on(const hc_direct_job *job, const hc_direct_windows *w) {
    const int64_t mr = job->kernel->mr, channels = job->conv->shape.group_channels;
    const float **rows = w->rows;
    for (int64_t first = 0; first < w->answers; first += mr)
        for (int64_t t = 0; t < job->pixels.taps; t++, rows += mr)
            for (int64_t i = 0; i < hc_min(mr, w->answers - first); i++)
                rows[i] += channels;
}

/* Computes the outputs of these windows in a group for n_panels panels. The first is panel `panel` of the group, at
 * b. */
static void multiply(const hc_direct_job *job, const hc_direct_windows *w, int64_t group, int64_t panel,
                     int64_t n_panels, const float *b) {
    const hc_pixels *pixels = &job->pixels;
    const int mr = job->kernel->mr, nr = job->kernel->nr;
    const int64_t pointers = pixels->taps * mr;
    const bool finishes = job->conv->bias || job->conv->relu;
    for (int64_t end = panel + n_panels; panel < end; panel++, b += job->filters.side.limb_bytes / (int64_t)sizeof *b) {
        const int64_t column = panel * nr, columns = hc_min(nr, job->filters.filters - column);
        const int64_t filter = group * job->filters.filters + column;
        for (int64_t t = 0; t * mr < w->answers; t++) {
            const int n = (int)hc_min(mr, w->answers - t * mr);
            float own[MAX_TILE];
            const int64_t ld = w->place[t] ? w->ld[t] : nr;
            float *tile = w->place[t] ? w->place[t] + filter : own;
            if (job->far && w->place[t])
                hc_fetch_answers(tile, n, columns, ld);
            job->kernel->fn.direct_f32(pixels->taps, pixels->run, w->rows + t * pointers, b, job->tap_step, job->step,
                                       n, (int)columns, tile, ld);
            if (tile == own || finishes)
                hc_write_answers(pixels, w->first + t * mr, n, filter, columns, tile, ld);
        }
    }
}

static void tiles_task(void *context, int64_t task, int thread) {
    const hc_direct_job *job = context;
    const hc_direct_windows w =
        find_windows(job, task * job->tiles * job->kernel->mr, job->private_memory + thread * job->private_bytes);
    for (int64_t g = 0; g < groups_at_hand(job); g++) {
        if (g)
            go_on(job, &w);
        multiply(job, &w, job->group + g, job->first_panel, job->n_panels,
                 job->packed ? packed_panel(job, job->group + g, job->first_panel) : panel_at(job, g * job->n_panels));
    }
}

static void panel_task(void *context, int64_t task, int thread) {
    const hc_direct_job *job = context;
    uint8_t *memory = job->private_memory + thread * job->private_bytes;
    const float *panel = job->packed ? packed_panel(job, job->group, task) : panel_at(job, thread);
    if (job->lines)
        hc_filter_lines(&job->filters, task, panel_at(job, thread));
    else if (!job->packed)
        hc_filter_panel(&job->filters, task, panel_at(job, thread), memory);
    for (int64_t first = 0; first < job->pixels.answers; first += job->tiles * job->kernel->mr) {
        const hc_direct_windows w = find_windows(job, first, memory);
        multiply(job, &w, job->group, task, 1, panel);
    }
}

/* All panels of the current groups; for one group, as many at once as there is memory for. */
static void tiles_by_panels(hc_direct_job *job, int n_threads) {
    for (job->first_panel = 0; job->first_panel < job->filters.panels; job->first_panel += job->panels_at_once) {
        job->n_panels = hc_min(job->panels_at_once, job->filters.panels - job->first_panel);
        if (!job->packed)
            hc_parallel(n_threads, job->n_panels * groups_at_hand(job), pack_task, job);
        for (int64_t band = 0; band < job->pixels.n_bands; band++) {
            hc_pixels_band(&job->pixels, band);
            hc_parallel(n_threads, hc_ceil_div(job->pixels.answers, job->tiles * job->kernel->mr), tiles_task, job);
        }
    }
}

hc_filter_form hc_conv_direct_form(const hc_convolution *conv) {
    hc_direct_job job;
    work_of(&job, conv);
    return job.form;
}

hc_status hc_conv_direct_prepack(const hc_convolution *conv, hc_prepacked_filters *to, hc_error *error) {
    hc_direct_job job;
    work_of(&job, conv);
    const int n_threads = conv->run->n_threads;
    job.private_memory = hc_alloc_aligned(n_threads * job.private_bytes);
    if (!job.private_memory)
        return hc_fail(error, HC_MEMORY, "prepack: not enough memory");
    job.panels = (uint8_t *)hc_prepacked_panels_to(to);
    job.n_panels = job.form.panels;
    hc_parallel(n_threads, job.form.groups * job.form.panels, pack_task, &job);
    hc_free_aligned(job.private_memory);
    return HC_OK;
}

hc_status hc_conv_direct_run(const hc_convolution *conv, hc_error *error) {
    if (hc_conv_is_few(conv))
        return hc_conv_few_run(conv, error);
    hc_direct_job job;
    work_of(&job, conv);
    const int n_threads = conv->run->n_threads;
    job.panels = hc_alloc_aligned(hc_max(job.panels_bytes, HC_CACHE_LINE) + n_threads * job.private_bytes);
    const bool has_memory = hc_pixels_alloc(&job.pixels) && job.panels;
    job.private_memory = hc_offset(job.panels, hc_max(job.panels_bytes, HC_CACHE_LINE));
    if (has_memory && job.by_panels)
        hc_pixels_band(&job.pixels, 0);
    for (job.group = 0; has_memory && job.group < conv->window->groups; job.group += job.groups) {
        hc_filter_panels_group(&job.filters, job.group);
        if (job.by_panels)
            hc_parallel(n_threads, job.filters.panels, panel_task, &job);
        else
            tiles_by_panels(&job, n_threads);
    }
    hc_pixels_free(&job.pixels);
    hc_free_aligned(job.panels);
    return has_memory ? HC_OK : hc_fail(error, HC_MEMORY, "conv2d: not enough memory for panels of filters");
}

const char *hc_conv_direct_rounded_refuses(const hc_convolution *conv) {
    if (conv->activations->m > 0 || (conv->w->packed && conv->w->packed->format.m > 0))
        return "zeros of a pattern are skipped in panels";
    if (!hc_lines_make_codes(conv) && conv->shape.group_channels > 1 && conv->window->groups > 1)
        return "channels of a group would not lie as the format rounds them";
    return hc_conv_direct_refuses(conv);
}

hc_conv_work hc_conv_direct_rounded_work(const hc_convolution *conv) {
    hc_conv_work work = hc_conv_direct_work(conv);
    work.moved = hc_conv_moved_codes(conv, 0.48);
    work.bytes += hc_rounded_bytes(conv);
    return work;
}

hc_status hc_conv_direct_rounded_run(const hc_convolution *conv, hc_error *error) {
    hc_rounded rounded;
    hc_status status = hc_rounded_begin(&rounded, conv, error);
    for (int64_t first = 0; status == HC_OK && first < conv->shape.n; first += rounded.images) {
        const int64_t n = hc_min(rounded.images, conv->shape.n - first);
        hc_view x, out;
        status = hc_rounded_images(&rounded, first, n, error);
        const hc_convolution part = hc_rounded_part(&rounded, 0, n, &x, &out);
        if (status == HC_OK)
            status = hc_conv_direct_run(&part, error);
    }
    hc_rounded_free(&rounded);
    return status;
}
