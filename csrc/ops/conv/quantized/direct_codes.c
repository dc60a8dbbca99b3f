/* `direct` of integers: a tile is mr windows, read in place from padded codes (codes.h), times nr filters, exact in
 * int32, then one scaling. Filters of up to 16 bits are two limbs of 8, and each has a tile. Without dilation the taps of a filter's row are one run of adjacent codes. A task is some
 * windows times some blocks of filters; the panels of a block are multiplied by AT_ONCE windows while these are in L1.
 * Short runs would fill steps of 4 values badly, so whole lines of a window's codes are first copied next to each
 * other. Narrow groups are joined: several become one, with zeros in the channels of other groups, since a tile of 16
 * filters takes as long as one of 2.
 *
 * Memory: all filters as panels, at most 40 MiB, unless they are prepacked, and the memory of codes.
 */
#include "base/threads.h"
#include "kernels/kernel.h"
#include "ops/conv/quantized/codes.h"
#include "ops/conv/windows.h"
#include "ops/product/prepack.h"

#include <string.h>

enum {
    PANELS_BYTES = 40 << 20,
    LONGEST = 65536, /* the kernel's budget */
    AT_ONCE = 16,    /* windows, and filters of a block, as hc_write_answers needs them */
    BLOCK = 64,
    MOST_NR = 32, /* of any kernel */
    TASK_WINDOWS = 96,
    TASKS = 4, /* at least this many per thread, so that threads end at the same time */
    LANES = 16,
    L2_BYTES = 1 << 20,
    COPIED = 256, /* maximum codes of a window; larger windows waste little in steps */
    AFTER = 32,   /* codes after a window that copying in whole blocks overwrites */
};

typedef struct {
    const hc_convolution *conv;
    const hc_kernel *kernel;
    hc_dequantize_s32_fn *dequantize;
    hc_codes codes;
    int64_t joined;                /* groups of the convolution that are joined to one here */
    int64_t groups, channels;      /* here; channels of a group */
    int64_t group_filters, panels; /* of a group */
    int64_t taps, run, steps;      /* run: values of w; steps: all steps of 4 values */
    int64_t lines, line;           /* copies: number of lines, and of codes in each, that become one run; otherwise 0 */
    bool ready;                    /* panels were packed before; of one limb */
    bool far;                      /* outputs are not in L1 or L2 */
    hc_panels side;
    hc_kc kc;
    int64_t *tap; /* offset of each tap, followed by the memory of kc */
    uint8_t *memory, *scratch;
    int64_t parts, windows; /* tasks of the same windows; windows of a task */
} hc_direct_codes_job;

/* A panel with its scales and, of each limb, init. */
static int64_t panel_bytes(const hc_direct_codes_job *job) {
    return job->side.limbs * job->side.limb_bytes + (1 + job->side.limbs) * job->kernel->nr * 4;
}

/* All panels, then init and scales. */
static int64_t panels_bytes(const hc_direct_codes_job *job) { return job->groups * job->panels * panel_bytes(job); }

/* Whether each group has a plane of its own: for formats with groups, and if steps of 4 values would read codes of the
 * next group. */
static bool has_planes(const hc_convolution *conv, int64_t groups, int64_t channels) {
    return groups > 1 && (conv->activations->group || channels % 4 != 0);
}

/* Number of groups that are joined: as many as fill the smallest number of filters of a tile, and need no planes. */
static int64_t joined_groups(const hc_convolution *conv, const hc_kernel *kernel) {
    const int64_t groups = conv->window->groups, channels = conv->shape.group_channels;
    const int64_t wide = hc_max(channels, conv->shape.filters / groups), most = hc_min(LANES, kernel->nr) / wide;
    int64_t joined = conv->activations->group ? 1 : hc_min(most, groups);
    while (joined > 1 && (groups % joined || has_planes(conv, groups / joined, joined * channels)))
        joined--;
    return hc_max(joined, 1);
}

/* Filters of joined groups. */
typedef struct {
    hc_filters context;
    hc_source filters; /* (tap, channel of the group) */
    int64_t joined, channels;
} hc_joined_filters;

static void joined_integers(const hc_source *source, hc_int_mode mode, int64_t first_row, int64_t rows,
                            int64_t first_column, int64_t columns, const hc_int_tile *tile) {
    enum { SOME = 1024 };
    const hc_joined_filters *j = source->context;
    const int64_t channels = j->channels, wide = j->joined * channels, end = first_column + columns;
    const int limbs = source->form[mode].n_limbs;
    int8_t codes[2][SOME];
    HC_ASSERT(channels <= LANES && limbs <= 2);
    for (int64_t row = first_row; row < first_row + rows; row++) {
        const int64_t begin = (row - first_row) * tile->ld;
        for (int l = 0; l < limbs; l++)
            memset(tile->limb[l] + begin, 0, (size_t)columns);
        const int64_t own = row / (source->rows / j->joined) * channels;
        for (int64_t tap = first_column / wide, some; tap * wide < end; tap += some) {
            some = hc_min(SOME / channels, hc_ceil_div(end, wide) - tap);
            const hc_int_tile part = {
                .limb = {codes[0], codes[1]}, .ld = SOME, .row_scale = tile->row_scale + (row - first_row)};
            j->filters.integers(&j->filters, mode, row, 1, tap * channels, some * channels, &part);
            for (int64_t t = 0; t < some; t++)
                for (int64_t c = 0, at = (tap + t) * wide + own; c < channels; c++, at++)
                    for (int l = 0; l < limbs && at >= first_column && at < end; l++)
                        tile->limb[l][begin + at - first_column] = codes[l][t * channels + c];
        }
    }
}

static hc_source filters_of(const hc_direct_codes_job *job, int64_t group, hc_joined_filters *j) {
    j->filters = hc_filter_source(job->conv, group * job->group_filters, job->group_filters, &j->context);
    j->joined = job->joined;
    j->channels = job->conv->shape.group_channels;
    if (job->joined == 1)
        return j->filters;
    hc_source all = {.rows = j->filters.rows,
                     .columns = j->filters.columns * job->joined,
                     .integers = joined_integers,
                     .runs = 1,
                     .run_length = j->filters.columns * job->joined,
                     .context = j};
    all.form[HC_INT_FOLDED] = j->filters.form[HC_INT_FOLDED];
    return all;
}

static const char *plan(hc_direct_codes_job *job, const hc_convolution *conv) {
    const hc_conv_shape *s = &conv->shape;
    const hc_kernel *kernel = HC_BEST(direct_s8, conv->run);
    *job = (hc_direct_codes_job){.conv = conv, .kernel = kernel, .dequantize = HC_PICK(dequantize_s32, conv->run)};
    job->joined = joined_groups(conv, kernel);
    job->groups = conv->window->groups / job->joined;
    job->channels = job->joined * s->group_channels;
    job->group_filters = s->filters / job->groups;
    job->far = hc_values(conv->out) > L2_BYTES / (int64_t)sizeof(float);
    const bool planes = has_planes(conv, job->groups, job->channels);
    const bool joins = conv->window->dilation[1] == 1 && (job->groups == 1 || planes);
    job->panels = hc_ceil_div(job->group_filters, kernel->nr);
    job->taps = joins ? s->r : s->r * s->s;
    job->run = joins ? s->s * job->channels : job->channels;
    job->steps = job->taps * hc_ceil_div(job->run, 4);
    const int64_t columns = job->taps * job->run;
    if (columns <= COPIED && 10 * job->steps * 4 > 11 * hc_round_up(columns, 4)) {
        job->lines = job->taps;
        job->line = job->run;
        job->taps = 1;
        job->run = columns;
        job->steps = hc_ceil_div(columns, 4);
    }
    if (job->steps * 4 > LONGEST)
        return "windows of more than 65536 values";
    hc_joined_filters filters;
    const hc_source w = filters_of(job, 0, &filters);
    hc_panels_init(&job->side, HC_ORDER_FOLDED, conv->run, &w, true);
    if (job->side.limbs > 2)
        return "filters of more than two limbs";
    if (job->side.limbs > 1 && columns > INT32_MAX / (128 * hc_most_of(&w, HC_INT_FOLDED)))
        return "int32 does not hold the sums of a window";
    hc_panels_use_kernel(&job->side, kernel, conv->run);
    job->side.limb_bytes = hc_limb_bytes(&job->side, job->steps);
    const hc_kernel *gemm = hc_product_line(HC_ORDER_FOLDED, false, false, NULL, conv->run);
    const bool even = job->taps == 1 || job->run % 4 == 0; /* packed like products, whose last step alone is padded */
    job->ready = even && job->side.limbs == 1 && gemm->nr == kernel->nr && gemm->form == kernel->form &&
                 hc_prepacked_fits(w.prepacked, HC_ORDER_FOLDED, &w, gemm, 1);
    if (job->ready)
        hc_prepacked_panels(w.prepacked, 0, &job->side);
    int64_t bytes;
    if (!hc_mul_size(job->groups * job->panels, panel_bytes(job), &bytes) || bytes > PANELS_BYTES)
        return "its filters as panels take more than 40 MiB";
    if (!hc_codes_plan(&job->codes, conv, kernel->form, planes, 1))
        return "a row of windows takes more than 16 MiB";
    job->kc = (hc_kc){.columns = job->taps * job->run,
                      .steps = job->steps,
                      .n_segments = even ? 1 : job->taps,
                      .even = even,
                      .opens = true,
                      .closes = true};
    return NULL;
}

const char *hc_conv_direct_codes_refuses(const hc_convolution *conv) {
    hc_direct_codes_job job;
    const char *reason = hc_codes_refuse(conv, 2, false);
    return reason ? reason : plan(&job, conv);
}

bool hc_conv_direct_codes_links(const hc_convolution *conv) {
    hc_direct_codes_job job;
    return !hc_conv_direct_codes_refuses(conv) && !plan(&job, conv) && job.codes.form == HC_PANEL_U8 &&
           job.codes.planes == 1 && job.side.limbs == 1;
}

hc_conv_work hc_conv_direct_codes_work(const hc_convolution *conv) {
    const hc_conv_shape *s = &conv->shape;
    hc_direct_codes_job job;
    plan(&job, conv);
    const double answers = (double)s->n * (double)(s->out_height * s->out_width);
    const int64_t filled = hc_round_up(job.group_filters, LANES) * job.groups;
    /* copying a window of 3 lines takes 14 ns, of 7 lines 25 (3 to 16, 32 and 64 @ 224, stride 2, Zen 4, 2026-11) */
    const double copied = job.lines ? answers * (double)(job.groups * (18 + 10 * job.lines)) : 0;
    const double limbs = job.side.limbs;
    return (hc_conv_work){.products = limbs * answers * (double)filled * (double)(job.taps * job.run),
                          .values = answers * (double)s->filters + copied, /* that are scaled, and of windows */
                          .filters = job.ready ? 0 : limbs * (double)s->filters * (double)(job.taps * job.run),
                          .moved = hc_conv_moved_codes(conv, 0.48),
                          .bytes = (job.ready ? 0 : panels_bytes(&job)) + hc_codes_bytes(&job.codes)};
}

static void pack_task(void *context, int64_t task, int thread) {
    const hc_direct_codes_job *job = context;
    const int64_t group = task / job->panels, panel = task % job->panels;
    hc_joined_filters filters;
    const hc_source w = filters_of(job, group, &filters);
    hc_panels side = job->side;
    side.source = &w;
    side.compensation_s8 = NULL; /* it would sum by segments */
    side.panels += task * side.limbs * side.limb_bytes;
    side.row_scales += task * side.tile;
    hc_pack_panel(&side, &job->kc, panel * side.tile, 0, job->scratch + thread * hc_pack_scratch());
    const int32_t steps = (int32_t)job->steps;
    for (int l = 0; l < side.limbs && job->side.compensation_s8; l++)
        job->side.compensation_s8(1, &steps, 1, (int8_t *)side.panels + l * side.limb_bytes, side.tile,
                                  side.init_factor, side.init + (task * side.limbs + l) * side.tile);
}

/* Copies windows next to each other into `to`, each as one run; their addresses are in `copies`. A copied block may end
 * after a line, where the next line follows. */
static void copy_windows(const hc_direct_codes_job *job, int n, const void *const *rows, uint8_t *to,
                         const void **copies) {
    enum { BYTES = 16 };
    const int64_t size = job->codes.code_bytes, line = job->line * size;
    for (int i = 0; i < n; i++, to += (COPIED + AFTER) * size) {
        for (int64_t t = 0; t < job->lines; t++) {
            const uint8_t *from = (const uint8_t *)rows[i] + job->tap[t] * size;
            for (int64_t at = 0; at < line; at += BYTES)
                memcpy(to + t * line + at, from + at, BYTES);
        }
        copies[i] = to;
    }
}

/* Windows of a task, found once for all filters: start of each and the scale of its image; address of the outputs of
 * each AT_ONCE windows for filter 0, or NULL. */
typedef struct {
    const void *rows[TASK_WINDOWS];
    float scales[TASK_WINDOWS];
    float *place[TASK_WINDOWS];
    int64_t ld[TASK_WINDOWS];
} hc_task_windows;

/* The sums of n windows, at most AT_ONCE, times the filters of a panel: limbs are joined modulo 2^32. */
static void sum_windows(const hc_direct_codes_job *job, int n, const void *const *rows, int64_t panel, int columns,
                        int32_t *sums) {
    static const int32_t zeros[BLOCK];
    static const int64_t whole = 0;
    const int mr = job->kernel->mr, nr = job->kernel->nr, limbs = job->side.limbs;
    const int8_t *b = (const int8_t *)job->side.panels + panel * limbs * job->side.limb_bytes;
    const int32_t *init = job->side.init ? job->side.init + panel * limbs * nr : NULL;
    int32_t high[AT_ONCE * MOST_NR];
    for (int l = 0; l < limbs; l++)
        for (int i = 0; i < n; i += mr)
            job->kernel->fn.direct_s8(job->taps, job->lines ? &whole : job->tap, hc_round_up(job->run, 4), rows + i,
                                      b + l * job->side.limb_bytes, init ? init + l * nr : zeros, hc_min(mr, n - i),
                                      columns, (l ? high : sums) + i * nr, nr);
    for (int i = 0; i < n * nr && limbs > 1; i++)
        sums[i] = (int32_t)((uint32_t)sums[i] + ((uint32_t)high[i] << 8));
}

/* Computes outputs first .. first + n of the band, n at most AT_ONCE, from index `at` on of the task's windows, for a
 * block of filters of a group. */
static void multiply(const hc_direct_codes_job *job, const hc_task_windows *windows, const hc_link_rows *linked,
                     int64_t at, int64_t group, int64_t first, int n, int64_t column) {
    const int nr = job->kernel->nr;
    const int64_t columns = hc_min(BLOCK, job->group_filters - column), filter = group * job->group_filters + column;
    const int64_t from = group * job->panels + column / nr;
    const void *copied[AT_ONCE], *const *rows = windows->rows + at;
    float values[AT_ONCE * BLOCK];
    _Alignas(HC_CACHE_LINE) int32_t sums[AT_ONCE * BLOCK];
    int16_t copies[AT_ONCE * (COPIED + AFTER)];
    if (job->lines) {
        copy_windows(job, n, rows, (uint8_t *)copies, copied);
        rows = copied;
    }
    float *place = windows->place[at] ? windows->place[at] + filter : values;
    const int64_t ld = windows->place[at] ? windows->ld[at] : BLOCK;
    if (job->far && place != values && !(job->conv->link && !job->conv->link->floats))
        hc_fetch_answers(place, n, columns, ld);
    for (int64_t j = 0; j < columns; j += nr) {
        const int64_t panel = from + j / nr;
        sum_windows(job, n, rows, panel, (int)hc_min(nr, columns - j), sums);
        if (job->conv->link) {
            hc_link_sums(&job->codes.answers, linked, n, filter + j, hc_min(nr, columns - j), sums, nr,
                         windows->scales[at], job->side.row_scales + panel * nr);
            continue;
        }
        job->dequantize(n, hc_min(nr, columns - j), sums, nr, windows->scales + at, job->side.row_scales + panel * nr,
                        place + j, ld);
    }
    if (!job->conv->link && (place == values || job->conv->bias || job->conv->relu))
        hc_write_answers(&job->codes.answers, first, n, filter, columns, place, ld);
}

static void multiply_task(void *context, int64_t task, int thread) {
    const hc_direct_codes_job *job = context;
    const hc_pixels *answers = &job->codes.answers;
    const int64_t part = task % job->parts, tasks = hc_ceil_div(answers->answers, job->windows);
    const int64_t group = task / job->parts / tasks, first = task / job->parts % tasks * job->windows;
    const int64_t n = hc_min(job->windows, answers->answers - first);
    const int64_t blocks = hc_ceil_div(job->group_filters, BLOCK), step = AT_ONCE / job->kernel->mr * job->kernel->mr;
    hc_task_windows windows;
    (void)thread;
    hc_code_windows(&job->codes, group * job->joined, first, (int)n, windows.rows, windows.scales);
    const bool links = job->conv->link, writes = !links || job->conv->link->floats;
    for (int64_t i = 0; i < n; i += step)
        windows.place[i] =
            writes ? hc_answers_at(answers, first + i, (int)hc_min(step, n - i), 0, &windows.ld[i]) : NULL;
    const int64_t from = blocks * part / job->parts, end = blocks * (part + 1) / job->parts;
    /* If panels stay in L2, neighbouring outputs are computed one after the other, so that their memory is
     * contiguous. */
    const int64_t beside = job->panels * panel_bytes(job) <= L2_BYTES / 4 ? end - from : 1;
    for (int64_t block = from; block < end; block += beside)
        for (int64_t i = 0; i < n; i += step) {
            const int some = (int)hc_min(step, n - i);
            hc_link_rows linked;
            if (links)
                hc_link_begin(answers, first + i, some, &linked);
            for (int64_t b = block; b < block + beside; b++)
                multiply(job, &windows, &linked, i, group, first + i, some, b * BLOCK);
        }
}

static bool prepare(hc_direct_codes_job *job) {
    const hc_conv_shape *s = &job->conv->shape;
    const int n_threads = job->conv->run->n_threads;
    const int64_t n = job->groups * job->panels, nr = job->kernel->nr;
    const int64_t taps = hc_max(job->lines, job->taps);
    const int64_t tap_at = job->ready ? 0 : hc_round_up(panels_bytes(job), HC_CACHE_LINE);
    const int64_t scratch_at = tap_at + hc_round_up(taps * 20, HC_CACHE_LINE);
    job->memory = hc_alloc_aligned(scratch_at + (job->ready ? 0 : n_threads * hc_pack_scratch()));
    if (!job->memory)
        return false;
    job->tap = (int64_t *)(void *)(job->memory + tap_at);
    for (int64_t t = 0; t < taps; t++)
        job->tap[t] = taps == s->r ? hc_code_tap(&job->codes, t, 0) : hc_code_tap(&job->codes, t / s->s, t % s->s);
    if (job->ready)
        return true;
    job->scratch = job->memory + scratch_at;
    job->side.panels = job->memory;
    job->side.row_scales = (float *)(void *)(job->memory + n * job->side.limbs * job->side.limb_bytes);
    job->side.init = job->side.compensation_s8 ? (int32_t *)(void *)(job->side.row_scales + n * nr) : NULL;
    job->kc.end = job->tap + taps;
    job->kc.segment_steps = (int32_t *)(void *)(job->kc.end + taps);
    for (int64_t i = 0; i < job->kc.n_segments; i++) {
        job->kc.end[i] = job->kc.columns / job->kc.n_segments * (i + 1);
        job->kc.segment_steps[i] = (int32_t)(job->steps / job->kc.n_segments);
    }
    hc_parallel(n_threads, n, pack_task, job);
    return true;
}

hc_status hc_conv_direct_codes_run(const hc_convolution *conv, hc_error *error) {
    hc_direct_codes_job job;
    plan(&job, conv);
    const int n_threads = conv->run->n_threads;
    hc_status status = hc_codes_begin(&job.codes, error);
    if (status == HC_OK && !prepare(&job))
        status = hc_fail(error, HC_MEMORY, "conv2d: not enough memory for panels of filters");
    for (int64_t band = 0; status == HC_OK && band < job.codes.n_bands; band++) {
        status = hc_codes_band(&job.codes, band, error);
        if (status != HC_OK)
            break;
        const int64_t all = job.codes.answers.answers, mr = job.kernel->mr, step = AT_ONCE / mr * mr;
        const int64_t groups = job.groups, blocks = hc_ceil_div(job.group_filters, BLOCK);
        const int64_t share = hc_ceil_div(hc_ceil_div(all * groups, TASKS * n_threads), step) * step;
        job.windows = hc_min(share, TASK_WINDOWS / step * step);
        const int64_t tasks = hc_ceil_div(all, job.windows) * groups;
        job.parts = tasks >= TASKS * n_threads ? 1 : hc_min(blocks, hc_ceil_div(TASKS * n_threads, tasks));
        hc_parallel(n_threads, tasks * job.parts, multiply_task, &job);
    }
    hc_codes_free(&job.codes);
    hc_free_aligned(job.memory);
    return status;
}
