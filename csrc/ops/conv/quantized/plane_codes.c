/* `planes` of filters of one channel with `activations`: planes of NCHW images by one filter each of 3, 5 or 7 a side, by
 * the kernel of floats. Pixels become floats a few planes at a time, and nothing is transposed:
 *
 *   order FOLDED    codes, and integer filters: sums below 2^24 are exact in float32; then one scaling in float64;
 *                   filters of 16 bits have two sums, of their limbs
 *   order GROUPED   codes, and integer filters with a scale for each tap
 *   order ROUNDED   rounded values, and filters as floats: one fmaf chain
 *
 * Memory: the filters and their scales as floats; per thread as `planes` of floats that converts its pixels.
 */
#include "ops/conv/quantized/plane_codes.h"

#include "base/threads.h"
#include "ops/conv/planes.h"
#include "ops/conv/quantized/images.h"
#include "ops/conv/windows.h"
#include "ops/product/pack.h"

#include <float.h>
#include <string.h>

enum {
    EXACT = 1 << 24,         /* integers of float32 below it */
    IMAGE_BYTES = 1 << 20,   /* of images whose scales are found before they are multiplied */
    FILTERS = 16,            /* that are decoded together */
    MOST_FILTERS = 12 << 20, /* bytes */
};

typedef struct {
    const hc_convolution *conv;
    hc_plane_tasks tasks;
    int64_t taps, filters, images, first; /* filters of a group; images at a time, the first at hand */
    int limbs;                            /* of a filter's codes; 0: floats */
    bool apart;                           /* two limbs are summed each */
    float *w, *high, *bias, *w_scale, *tap_scale, *scale;
    double *sum_scale; /* of the images at hand */
    uint32_t *largest;
    uint8_t *private_memory;
} hc_plane_codes_job;

static hc_int_form form_of(const hc_convolution *conv) {
    return hc_integers_of(&conv->w->packed->format, conv->order == HC_CONV_FOLDED ? HC_INT_FOLDED : HC_INT_GROUPED);
}

/* Limbs of filters whose sums of magnitudes of products stay below 2^24; 0 if there are none. */
static int exact_limbs(const hc_convolution *conv) {
    enum { LIMB = 256 }; /* magnitudes of a limb */
    hc_filters context;
    const hc_source w = hc_filter_source(conv, 0, 1, &context);
    const int64_t pixels = conv->shape.r * conv->shape.s * HC_LINE_LARGEST;
    if (form_of(conv).n_limbs < 1 || form_of(conv).n_limbs > 2)
        return 0;
    return pixels * hc_most_of(&w, HC_INT_FOLDED) < EXACT ? 1 : pixels * LIMB < EXACT ? 2 : 0;
}

const char *hc_conv_plane_codes_refuses(const hc_convolution *conv) {
    const hc_format *w = conv->w->packed ? &conv->w->packed->format : NULL;
    const char *reason = hc_planes_refuse(conv);
    hc_plane_tasks tasks;
    if (reason)
        return reason;
    if (!hc_lines_make_codes(conv) || conv->activations->group || conv->shape.height * conv->shape.width == 0)
        return "x is not float32 that becomes codes of 8 bits with one scale an image";
    if (!hc_plane_plan(conv, true, &tasks))
        return "it is for 3 x 3, 5 x 5 and 7 x 7 filters of one channel";
    if (conv->shape.filters > MOST_FILTERS / (int64_t)sizeof(float) / (conv->shape.r * conv->shape.s))
        return "filters as floats take more than 12 MiB";
    if (conv->order == HC_CONV_ROUNDED)
        return w && w->m > 0 ? "zeros of a pattern are skipped in panels" : NULL;
    if (conv->order == HC_CONV_GROUPED)
        return w->group == 0 || form_of(conv).n_limbs != 1 ? "codes are of more than 8 bits, or a filter has one scale"
                                                           : NULL;
    return exact_limbs(conv) ? NULL : "filters have no integers of 16 bits whose sums are below 2^24";
}

static void plan(hc_plane_codes_job *job, const hc_convolution *conv) {
    const hc_conv_shape *s = &conv->shape;
    *job = (hc_plane_codes_job){.conv = conv, .taps = s->r * s->s, .filters = s->filters / conv->window->groups};
    hc_plane_plan(conv, true, &job->tasks);
    job->limbs = conv->order == HC_CONV_ROUNDED ? 0 : form_of(conv).n_limbs;
    job->apart = conv->order == HC_CONV_FOLDED && exact_limbs(conv) == 2;
    const int64_t image = hc_max(1, s->channels * s->height * s->width) * (int64_t)sizeof(float);
    job->images = conv->order == HC_CONV_GROUPED ? 1 : hc_max(1, hc_min(s->n, IMAGE_BYTES / image));
}

/* Floats of filters and their scales, and of all scales of the images at hand; doubles come first. */
static int64_t shared_floats(const hc_plane_codes_job *job) {
    const hc_conv_shape *s = &job->conv->shape;
    const bool grouped = job->conv->order == HC_CONV_GROUPED;
    const int64_t arrays = grouped ? 3 : job->apart ? 2 : 1;
    return 2 * job->images * s->filters + arrays * s->filters * job->taps + 2 * s->filters +
           job->images * (1 + s->height);
}

/* Bytes of the codes of some filters. */
static int64_t code_bytes(const hc_plane_codes_job *job) {
    return hc_round_up(FILTERS * job->taps * hc_max(job->limbs, 1), HC_CACHE_LINE);
}

static int64_t private_bytes(const hc_plane_codes_job *job) {
    return hc_max(job->tasks.private_bytes, code_bytes(job));
}

/* How many times longer a product takes than one of floats. A scale, and a second limb, take another instruction, and limbs
 * have half as many rows at a time. Rows of one register take longer than the counts of floats say (18 layers of 32 to 1152
 * planes of 7 x 7 to 112 x 112, 6 formats, Zen 5, AVX-512 and AVX2, 2026-12). */
static double slower(const hc_plane_codes_job *job, int64_t lanes) {
    const hc_convolution *conv = job->conv;
    const hc_conv_shape *s = &conv->shape;
    const bool narrow = s->out_width <= lanes, wide = s->r > 3, grouped = conv->order == HC_CONV_GROUPED;
    if (grouped || job->apart)
        return wide ? (grouped ? 1.2 : 1.6) * (narrow ? 1.5 : 1) : grouped ? 1.75 : 2.4;
    return narrow && (wide || conv->window->stride[0] == 2) ? 1.8 : 1;
}

hc_conv_work hc_conv_plane_codes_work(const hc_convolution *conv) {
    hc_plane_codes_job job;
    plan(&job, conv);
    const hc_conv_shape *s = &conv->shape;
    const int64_t lanes = HC_BEST(planes_f32, conv->run)->mr;
    hc_conv_work work = hc_plane_counts(conv, lanes);
    const double images = (double)s->n * (double)s->channels * (double)(s->height * s->width);
    const double outputs = (double)s->n * (double)s->filters * (double)(s->out_height * s->out_width);
    /* x is read twice and copied as codes: 0.1 ns a value; a sum that is scaled: 0.05 ns (Zen 5, 2026-12) */
    work.products *= slower(&job, lanes);
    work.values += 2 * images + (conv->order == HC_CONV_FOLDED ? 1 : 0) * outputs;
    work.of_floats = true;
    work.bytes = shared_floats(&job) * (int64_t)sizeof(float) + conv->run->n_threads * private_bytes(&job);
    return work;
}

/* The filters from FILTERS * task on, tap by tap. */
static void filters_task(void *context, int64_t task, int thread) {
    const hc_plane_codes_job *job = context;
    const int64_t first = task * FILTERS, n = hc_min(FILTERS, job->conv->shape.filters - first), taps = job->taps;
    float *to = job->w + first * taps;
    hc_filters context_of;
    const hc_source w = hc_filter_source(job->conv, first, n, &context_of);
    if (job->limbs == 0) {
        w.floats(&w, 0, n, 0, taps, to, taps);
        return;
    }
    int8_t *codes = (int8_t *)job->private_memory + thread * private_bytes(job), *high = codes + FILTERS * taps;
    const bool folded = job->conv->order == HC_CONV_FOLDED;
    const hc_int_tile tile = {.limb = {codes, high},
                              .ld = taps,
                              .group_scale = folded ? NULL : job->tap_scale + first * taps,
                              .groups_ld = taps,
                              .row_scale = folded ? job->w_scale + first : NULL};
    w.integers(&w, folded ? HC_INT_FOLDED : HC_INT_GROUPED, 0, n, 0, taps, &tile);
    for (int64_t i = 0; i < n * taps && job->apart; i++)
        job->high[first * taps + i] = (float)high[i];
    for (int64_t i = 0; i < n * taps && job->apart; i++)
        to[i] = (float)(uint8_t)codes[i];
    for (int64_t i = 0; i < n * taps && !job->apart; i++)
        to[i] = (float)(job->limbs > 1 ? high[i] * 256 + (uint8_t)codes[i] : codes[i]);
}

/* Rows [first, first + rows) of some planes, `step` bytes apart, as codes or rounded values. */
static void round_planes(const hc_convolution *conv, const char *from, int64_t planes, int64_t step, int64_t first,
                         int64_t rows, float scale, float *to) {
    const int64_t line = conv->x->strides[2], width = conv->shape.width, size = sizeof(float);
    const bool rounded = conv->order == HC_CONV_ROUNDED, follow = line == width * size || rows == 1;
    const bool all = follow && step == rows * width * size;
    const int64_t n = planes * rows * width, count = all ? n : rows * width;
    hc_codes_s8_fn *codes = HC_PICK(codes_s8, conv->run);
    float *at = to;
    for (int64_t i = 0; i < (all ? 1 : planes) && follow; i++, at += count)
        codes((const float *)(const void *)(from + i * step + first * line), count, scale,
              rounded ? HC_CODES_ROUNDED : HC_PANEL_F32, at);
    for (int64_t i = 0; i < planes && !follow; i++) /* short rows come next to each other first */
        for (int64_t h = 0; h < rows; h++, at += width)
            memcpy(at, from + i * step + (first + h) * line, (size_t)(width * size));
    if (!follow)
        codes(to, n, scale, rounded ? HC_CODES_ROUNDED : HC_PANEL_F32, to);
    if (rounded &&
        scale > FLT_MAX / (2 * HC_LINE_LARGEST)) /* the largest code may decode to infinity, which saturates */
        for (; to < at; to++)
            *to = *to > FLT_MAX ? FLT_MAX : *to < -FLT_MAX ? -FLT_MAX : *to;
}

/* Some rows of outputs of some filters of an image: of adjacent groups, or of one group. */
static void each_task(void *context, int64_t task, int thread) {
    const hc_plane_codes_job *job = context;
    const hc_convolution *conv = job->conv;
    const hc_conv_shape *s = &conv->shape;
    const hc_view *x = conv->x, *out = conv->out;
    const int64_t strips = hc_ceil_div(s->out_height, job->tasks.rows), size = sizeof(float);
    const int64_t unit = job->filters > 1 ? job->filters : s->filters, units = s->filters / unit;
    const int64_t parts = hc_ceil_div(unit, job->tasks.together);
    const int64_t row = task % strips * job->tasks.rows, part = task / strips % parts;
    const int64_t image = task / strips / parts / units, number = job->first + image;
    const int64_t filter = task / strips / parts % units * unit + part * job->tasks.together;
    uint8_t *own = job->private_memory + thread * private_bytes(job);
    float *pixels = (float *)(void *)(own + job->tasks.converted_at);
    hc_plane plane = hc_plane_of(conv, row, hc_min(job->tasks.rows, s->out_height - row));
    plane.planes = hc_min(job->tasks.together, unit - part * job->tasks.together);
    plane.w = job->w + filter * job->taps;
    plane.w_step = job->taps;
    plane.bias = conv->bias ? job->bias + filter : NULL;
    plane.scale = conv->order == HC_CONV_FOLDED ? job->sum_scale + image * s->filters + filter : NULL;
    plane.high = job->apart ? job->high + filter * job->taps : NULL;
    plane.tap_scale = conv->order == HC_CONV_GROUPED ? job->tap_scale + (s->filters + filter) * job->taps : NULL;
    plane.c = (float *)(void *)((char *)out->data + number * out->strides[0] + filter * out->strides[1] +
                                row * out->strides[2]);
    plane.c_step = out->strides[1] / size;
    plane.work = (float *)(void *)own;
    const int64_t first = hc_plane_rows(conv, row, plane.down, &plane.rows);
    round_planes(conv, (const char *)x->data + number * x->strides[0] + filter / job->filters * x->strides[1],
                 job->filters > 1 ? 1 : plane.planes, x->strides[1], first, plane.rows, job->scale[image], pixels);
    plane.x = pixels;
    plane.x_step = job->filters > 1 ? 0 : plane.rows * s->width;
    plane.row_step = s->width;
    plane.top += first;
    HC_PICK(plane_f32, conv->run)(&plane);
}

/* The scales of the images at hand times those of the filters. */
static void set_scales(const hc_plane_codes_job *job, int64_t images) {
    const int64_t filters = job->conv->shape.filters, all = filters * job->taps;
    for (int64_t i = 0; i < images && job->conv->order == HC_CONV_FOLDED; i++)
        for (int64_t f = 0; f < filters; f++)
            job->sum_scale[i * filters + f] = (double)job->scale[i] * (double)job->w_scale[f];
    for (int64_t i = 0; i < all && job->conv->order == HC_CONV_GROUPED; i++)
        job->tap_scale[all + i] = job->scale[0] * job->tap_scale[i];
}

hc_status hc_conv_plane_codes_run(const hc_convolution *conv, hc_error *error) {
    hc_plane_codes_job job;
    plan(&job, conv);
    const hc_conv_shape *s = &conv->shape;
    const bool grouped = conv->order == HC_CONV_GROUPED;
    const int64_t shared = hc_round_up(shared_floats(&job) * (int64_t)sizeof(float), HC_CACHE_LINE);
    const int n_threads = conv->run->n_threads;
    uint8_t *memory = hc_alloc_aligned(shared + n_threads * private_bytes(&job));
    if (!memory)
        return hc_fail(error, HC_MEMORY, "conv2d: not enough memory for planes");
    job.sum_scale = (double *)(void *)memory;
    job.w = (float *)(void *)(job.sum_scale + job.images * s->filters);
    job.tap_scale = job.w + s->filters * job.taps;
    job.high = job.w + s->filters * job.taps;
    job.w_scale = job.tap_scale + (grouped ? 2 : job.apart ? 1 : 0) * s->filters * job.taps;
    job.bias = job.w_scale + s->filters;
    job.scale = job.bias + s->filters;
    job.largest = (uint32_t *)(void *)(job.scale + job.images);
    job.private_memory = memory + shared;
    for (int64_t f = 0; f < s->filters && conv->bias; f++)
        memcpy(job.bias + f, (const char *)conv->bias->data + f * conv->bias->strides[0], sizeof *job.bias);
    hc_parallel(n_threads, hc_ceil_div(s->filters, FILTERS), filters_task, &job);
    const int64_t unit = job.filters > 1 ? job.filters : s->filters;
    const int64_t tasks =
        s->filters / unit * hc_ceil_div(unit, job.tasks.together) * hc_ceil_div(s->out_height, job.tasks.rows);
    hc_status status = HC_OK;
    for (; status == HC_OK && job.first < s->n; job.first += job.images) {
        const int64_t images = hc_min(job.images, s->n - job.first);
        status = hc_images_scales(conv->images, job.first, images, job.largest, job.scale, error);
        if (status != HC_OK)
            break;
        set_scales(&job, images);
        hc_parallel(n_threads, images * tasks, each_task, &job);
    }
    hc_free_aligned(memory);
    return status;
}
