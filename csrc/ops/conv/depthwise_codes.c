/* `depthwise` of integers: channels in lanes among padded codes (codes.h), exact in int32, then one scaling. Taps meet two at
 * a time. A task is a row of answers.
 *
 * Memory: the filters as int16, tap by tap, their scales, and what codes take.
 */
#include "base/threads.h"
#include "kernels/kernel.h"
#include "ops/codec/decode.h"
#include "ops/conv/codes.h"

#include <string.h>

/* Answers and filters of a call, what hc_write_answers takes; the kernel's budget. */
enum { ANSWERS = 16, PART = 64, LONGEST = 65536, DECODED = 16 << 10 };

typedef struct {
    const hc_convolution *conv;
    hc_depthwise_s16_fn *kernel;
    hc_dequantize_s32_fn *dequantize;
    hc_codes codes;
    int64_t filters, pairs, at_once;
    int16_t *panel; /* (pair, filter, tap of the pair) */
    float *scales;
    int64_t *tap;
    int8_t *decoded; /* filters, at_once of them */
} hc_depthwise_codes_job;

const char *hc_depthwise_codes_refuse(const hc_convolution *conv) {
    const hc_conv_shape *s = &conv->shape;
    hc_codes codes;
    const char *reason = hc_codes_refuse(conv);
    if (reason)
        return reason;
    if (s->group_channels != 1 || s->filters != conv->window->groups)
        return "it is for groups of one channel and one filter";
    if (conv->activations->group)
        return "x has a scale for every value"; /* groups end with a channel's pixel */
    if (s->r * s->s > LONGEST)
        return "windows of more than 65536 values";
    return hc_codes_plan(&codes, conv, HC_PANEL_S16, false, 1) ? NULL : "a row of windows takes more than 16 MiB";
}

static int64_t plan(hc_depthwise_codes_job *job, const hc_convolution *conv) {
    const hc_conv_shape *s = &conv->shape;
    *job = (hc_depthwise_codes_job){.conv = conv, .filters = s->filters, .pairs = hc_ceil_div(s->r * s->s, 2)};
    job->kernel = HC_PICK(depthwise_s16, conv->run);
    job->dequantize = HC_PICK(dequantize_s32, conv->run);
    hc_codes_plan(&job->codes, conv, HC_PANEL_S16, false, 1);
    job->at_once = hc_max(1, hc_min(job->filters, DECODED / s->geometry.padded));
    return job->pairs * (int64_t)(2 * sizeof *job->tap) + job->filters * (4 * job->pairs + (int64_t)sizeof(float)) +
           job->at_once * s->geometry.padded;
}

hc_conv_work hc_depthwise_codes_work(const hc_convolution *conv) {
    const hc_conv_shape *s = &conv->shape;
    hc_depthwise_codes_job job;
    const int64_t bytes = plan(&job, conv);
    const double answers = (double)s->n * (double)(s->out_height * s->out_width);
    return (hc_conv_work){answers * (double)(job.filters * s->r * s->s), bytes + hc_codes_bytes(&job.codes)};
}

/* The filters tap by tap, decoded some at a time; the last pair may have one. */
static void load_filters(const hc_depthwise_codes_job *job) {
    const hc_conv_shape *s = &job->conv->shape;
    const hc_packed *w = job->conv->w->packed;
    const int64_t taps = s->r * s->s, padded = s->geometry.padded, step = padded / taps; /* a tap is a run of one */
    for (int64_t t = 0; t < 2 * job->pairs; t++)
        job->tap[t] = t < taps ? hc_code_tap(&job->codes, t / s->s, t % s->s) : job->tap[t - 1];
    memset(job->panel, 0, (size_t)(4 * job->pairs * job->filters));
    for (int64_t first = 0; first < job->filters; first += job->at_once) {
        const hc_tile tile = {first, hc_min(job->at_once, job->filters - first), 0, padded};
        const hc_int_tile out = {.limb = {job->decoded}, .ld = padded, .row_scale = job->scales + first};
        hc_decode_int_tile(job->conv->run, &w->format, &s->geometry, &w->components, &tile, HC_INT_FOLDED, &out);
        for (int64_t t = 0; t < taps; t++)
            for (int64_t f = 0; f < tile.rows; f++)
                job->panel[(t / 2 * job->filters + first + f) * 2 + t % 2] = job->decoded[f * padded + t * step];
    }
}

static void multiply_task(void *context, int64_t task, int thread) {
    const hc_depthwise_codes_job *job = context;
    const hc_codes *codes = &job->codes;
    const hc_pixels *answers = &codes->answers;
    const int64_t width = job->conv->shape.out_width, step = job->conv->window->stride[1] * codes->depth;
    (void)thread;
    for (int64_t q = 0; q < width; q += ANSWERS) {
        const int n = (int)hc_min(ANSWERS, width - q);
        const void *rows[ANSWERS];
        float scales[ANSWERS], values[ANSWERS * PART];
        int32_t sums[ANSWERS * PART];
        hc_code_windows(codes, 0, task * width + q, n, rows, scales);
        for (int64_t filter = 0; filter < job->filters; filter += PART) {
            const int64_t part = hc_min(PART, job->filters - filter);
            int64_t ld;
            job->kernel(job->pairs, job->tap, step, (const int16_t *)rows[0] + filter, job->panel + 2 * filter,
                        job->filters, n, part, sums, PART);
            float *place = hc_answers_at(answers, task * width + q, n, filter, &ld);
            if (!place) {
                place = values;
                ld = PART;
            }
            job->dequantize(n, part, sums, PART, scales, job->scales + filter, place, ld);
            if (place == values || job->conv->bias || job->conv->relu)
                hc_write_answers(answers, task * width + q, n, filter, part, place, ld);
        }
    }
}

hc_status hc_depthwise_codes_run(const hc_convolution *conv, hc_error *error) {
    hc_depthwise_codes_job job;
    uint8_t *memory = hc_alloc_aligned(plan(&job, conv));
    hc_status status = hc_codes_begin(&job.codes, error);
    if (status == HC_OK && !memory)
        status = hc_fail(error, HC_MEMORY, "conv2d: no memory for filters");
    if (status == HC_OK) {
        job.tap = (int64_t *)(void *)memory;
        job.scales = (float *)(void *)(job.tap + 2 * job.pairs);
        job.panel = (int16_t *)(void *)(job.scales + job.filters);
        job.decoded = (int8_t *)(job.panel + 2 * job.pairs * job.filters);
        load_filters(&job);
    }
    for (int64_t band = 0; status == HC_OK && band < job.codes.n_bands; band++) {
        status = hc_codes_band(&job.codes, band, error);
        if (status == HC_OK)
            hc_parallel(conv->run->n_threads, job.codes.answers.n_images * job.codes.answers.n_rows, multiply_task,
                        &job);
    }
    hc_codes_free(&job.codes);
    hc_free_aligned(memory);
    return status;
}
