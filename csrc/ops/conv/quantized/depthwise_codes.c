/* `depthwise` of integers: channels of padded codes (codes.h) in lanes, exact in int32, then one scaling. Two taps are
 * multiplied at a time, with filters as int16 (of one limb or two), and a task is a row of outputs. Kernels for 3 x 3,
 * 5 x 5 and 7 x 7 filters of bytes multiply up to four taps at a time, and a task is several rows, in blocks of outputs
 * that share the pixels they read.
 *
 * Memory: the filters as int16 or bytes, tap by tap, and their scales, unless they are prepacked, and the memory of codes.
 */
#include "base/threads.h"
#include "kernels/kernel.h"
#include "ops/codec/decode.h"
#include "ops/conv/prepacked.h"
#include "ops/conv/quantized/codes.h"
#include "ops/conv/windows.h"
#include "ops/product/prepack.h"

#include <string.h>

/* Outputs and filters of a call, as hc_write_answers needs them; the kernel's budget. */
enum { ANSWERS = 16, PART = 64, LONGEST = 65536, LONGEST_WIDE = 256, DECODED = 16 << 10 };

/* Of blocks: maximum number of outputs of a row, and of rows, which stay in L1; a panel is padded to a multiple of
 * LANES. Bytes that are read from the start of a row of taps. */
enum { ACROSS = 16, DOWN = 4, LANES = 16, ROOM = 8 };

typedef struct {
    const hc_convolution *conv;
    hc_depthwise_s16_fn *kernel;
    const hc_kernel *block; /* kernel for blocks of outputs with filters of bytes; otherwise NULL */
    hc_dequantize_s32_fn *dequantize;
    hc_codes codes;
    int limbs; /* of a filter's codes: 1 or 2 */
    int64_t filters, pairs, at_once;
    int64_t panel_bytes;
    hc_filter_form form;
    int16_t *panel;     /* (pair, filter, tap of the pair) */
    int8_t *bytes;      /* of blocks: (LANES filters, row of taps, output, word, filter, tap) */
    int outputs, words; /* of a block; 1 and 1 for 3 x 3 filters */
    int32_t *init;      /* of blocks: the sum that codes biased by ZERO add, subtracted */
    float *scales;
    const float *ready; /* prepacked panel, or NULL */
    int64_t *tap;
    int8_t *decoded; /* at_once filters, followed by their high limbs */
} hc_depthwise_codes_job;

static int limbs_of(const hc_convolution *conv) {
    return hc_integers_of(&conv->w->packed->format, HC_INT_FOLDED).n_limbs;
}

/* The kernel for blocks of outputs of these filters, or NULL. */
static const hc_kernel *block_kernel(const hc_convolution *conv) {
    const hc_window *window = conv->window;
    const int64_t side = conv->shape.r;
    const hc_kernel *kernel = side == 3 ? HC_BEST(depthwise3_s8, conv->run) : HC_BEST(depthwise_wide_s8, conv->run);
    const bool exists = side == 3 ? kernel->fn.depthwise3_s8 != NULL : kernel->fn.depthwise_wide_s8 != NULL;
    const bool fits = (side == 3 || side == 5 || side == 7) && conv->shape.s == side && window->dilation[0] == 1 &&
                      window->dilation[1] == 1 && window->stride[0] == window->stride[1] && window->stride[0] <= 2;
    return fits && limbs_of(conv) == 1 && exists ? kernel : NULL;
}

static bool codes_plan(hc_codes *codes, const hc_convolution *conv) {
    const hc_kernel *block = block_kernel(conv);
    return hc_codes_plan(codes, conv, block ? HC_PANEL_U8 : HC_PANEL_S16, false, block ? block->mr : 1);
}

const char *hc_conv_depthwise_codes_refuses(const hc_convolution *conv) {
    const hc_conv_shape *s = &conv->shape;
    hc_codes codes;
    const char *reason = hc_codes_refuse(conv, 2, true);
    if (reason)
        return reason;
    if (s->group_channels != 1 || s->filters != conv->window->groups)
        return "it is for groups of one channel and one filter";
    if (conv->activations->group)
        return "x has a scale for every value";                       /* a group ends with a channel's pixel */
    if (s->r * s->s > (limbs_of(conv) == 1 ? LONGEST : LONGEST_WIDE)) /* sums stay below 2^31 */
        return limbs_of(conv) == 1 ? "windows of more than 65536 values" : "windows of more than 256 values of 16 bits";
    return codes_plan(&codes, conv) ? NULL : "a row of windows takes more than 16 MiB";
}

bool hc_conv_depthwise_codes_links(const hc_convolution *conv) {
    return !hc_conv_depthwise_codes_refuses(conv) && block_kernel(conv);
}

/* Bytes of a filter in the panel of blocks. */
static int64_t filter_bytes(const hc_depthwise_codes_job *job) {
    return job->conv->shape.r * job->outputs * job->words * 4;
}

/* Scales and decoded filters, after which ROOM bytes are readable. */
static int64_t filters_memory(const hc_depthwise_codes_job *job) {
    return job->filters * (int64_t)sizeof(float) + job->limbs * job->at_once * job->conv->shape.geometry.padded + ROOM;
}

static int64_t plan(hc_depthwise_codes_job *job, const hc_convolution *conv) {
    const hc_conv_shape *s = &conv->shape;
    *job = (hc_depthwise_codes_job){
        .conv = conv, .limbs = limbs_of(conv), .filters = s->filters, .pairs = hc_ceil_div(s->r * s->s, 2)};
    job->kernel = HC_PICK(depthwise_s16, conv->run);
    job->dequantize = HC_PICK(dequantize_s32, conv->run);
    job->block = block_kernel(conv);
    codes_plan(&job->codes, conv);
    job->at_once = hc_max(1, DECODED / s->geometry.padded);
    job->at_once = hc_min(job->filters, job->block ? hc_round_up(job->at_once, LANES) : job->at_once);
    job->panel_bytes = 4 * job->filters * job->pairs;
    const int stride = (int)conv->window->stride[0], side = (int)s->r;
    job->outputs = job->block && side > 3 ? HC_WIDE_OUTPUTS(stride) : 1;
    job->words = job->block && side > 3 ? HC_WIDE_WORDS(side, stride) : 1;
    if (job->block)
        job->panel_bytes = hc_round_up(job->filters, LANES) * (filter_bytes(job) + (int64_t)sizeof *job->init);
    job->panel_bytes = hc_round_up(job->panel_bytes, HC_CACHE_LINE);
    job->form = (hc_filter_form){.kernel = job->block ? (intptr_t)job->block : (intptr_t)job->kernel,
                                 .groups = 1,
                                 .m = job->limbs,
                                 .height = job->outputs,
                                 .width = job->words,
                                 .down = stride,
                                 .panels = 1,
                                 .panel_floats = job->panel_bytes / (int64_t)sizeof(float)};
    job->ready = hc_prepacked_panels_of(conv, &job->form, 0);
    const int64_t taps = hc_round_up(job->pairs * (int64_t)(2 * sizeof *job->tap), HC_CACHE_LINE);
    return job->ready ? taps : taps + job->panel_bytes + filters_memory(job);
}

hc_filter_form hc_conv_depthwise_codes_form(const hc_convolution *conv) {
    hc_depthwise_codes_job job;
    plan(&job, conv);
    return job.form;
}

hc_conv_work hc_conv_depthwise_codes_work(const hc_convolution *conv) {
    const hc_conv_shape *s = &conv->shape;
    hc_depthwise_codes_job job;
    const int64_t bytes = plan(&job, conv);
    const double answers = (double)s->n * (double)(s->out_height * s->out_width);
    /* blocks of 5 x 5 and 7 x 7 filters take half as long a product (96 to 672 channels @ 14 to 56, Zen 4, 2026-12) */
    const double share = job.block && s->r > 3 ? 0.5 : 1;
    return (hc_conv_work){.products = share * answers * (double)(job.filters * s->r * s->s),
                          .moved = hc_conv_moved_codes(conv, 0.48),
                          .bytes = bytes + hc_codes_bytes(&job.codes)};
}

/* Writes the codes of filter `filter`, tap by tap, into the panel; the last pair may have one tap. `high` are high
 * limbs, or NULL. */
static void load_filter(const hc_depthwise_codes_job *job, int64_t filter, int64_t taps, const int8_t *codes,
                        const int8_t *high) {
    for (int64_t t = 0; t < taps; t++) {
        const int value = high ? high[t] * 256 + (uint8_t)codes[t] : codes[t];
        job->panel[(t / 2 * job->filters + filter) * 2 + t % 2] = (int16_t)value;
    }
}

/* The panel of blocks of up to LANES filters from `first` on, `codes` one filter after the other. A word has the taps
 * of a row that meet 4 adjacent pixels, zeros where it has none. ROOM bytes from each row of taps on are readable. */
static void load_lanes(const hc_depthwise_codes_job *job, int64_t first, int64_t n, const int8_t *codes) {
    enum { ZERO = 128, WORD = 4 };
    const int64_t side = job->conv->shape.r, taps = side * side, bits = 8 * job->conv->window->stride[0];
    const uint64_t row = ((uint64_t)1 << 8 * side) - 1;
    uint32_t *to = (uint32_t *)(void *)(job->bytes + first * filter_bytes(job));
    for (int64_t i = 0; i < LANES; i++) {
        int32_t sum = 0;
        for (int64_t t = 0; t < taps && i < n; t++)
            sum += codes[i * taps + t];
        job->init[first + i] = -ZERO * sum;
    }
    for (int64_t r = 0; r < side; r++) {
        uint64_t lane[LANES] = {0};
        for (int64_t i = 0; i < n; i++) {
            memcpy(&lane[i], codes + i * taps + r * side, ROOM);
            lane[i] &= row;
        }
        for (int a = 0; a < job->outputs; a++)
            for (int g = 0; g < job->words; g++, to += LANES) {
                const int64_t up = a * bits - g * 8 * WORD; /* bits by which the taps of output a lie higher */
                if (up >= 0)
                    for (int i = 0; i < LANES; i++)
                        to[i] = (uint32_t)(lane[i] << up);
                else
                    for (int i = 0; i < LANES; i++)
                        to[i] = up > -64 ? (uint32_t)(lane[i] >> -up) : 0;
            }
    }
}

/* Reads codes of `rows` filters from `first` on, one filter after the other, into job->decoded, and their scales: from
 * prepacked panels of products, or by decoding. */
static void read_codes(const hc_depthwise_codes_job *job, const hc_source *source, const hc_kernel *packed,
                       int64_t first, int64_t rows, int64_t taps) {
    const hc_packed *w = job->conv->w->packed;
    const hc_geometry *geometry = &job->conv->shape.geometry;
    if (packed) {
        enum { WORD = 4 }; /* contiguous values of a row, for every step of the kernel (pack.c) */
        const int64_t nr = packed->nr;
        hc_panels side = {0};
        hc_prepacked_panels(w->prepacked, 0, &side);
        for (int64_t f = first; f < first + rows; f++) {
            const int8_t *from = (const int8_t *)side.panels + f / nr * side.limb_bytes + f % nr * WORD;
            for (int64_t t = 0; t < taps; t++)
                job->decoded[(f - first) * taps + t] = from[t / WORD * nr * WORD + t % WORD];
            job->scales[f] = side.row_scales[f];
        }
        return;
    }
    if (w->format.m > 0) { /* the zeros of a pattern take their places */
        const hc_int_tile out = {.limb = {job->decoded, job->decoded + job->at_once * geometry->padded},
                                 .ld = taps,
                                 .row_scale = job->scales + first};
        source->integers(source, HC_INT_FOLDED, first, rows, 0, taps, &out);
        return;
    }
    const int64_t padded = geometry->padded, step = padded / taps; /* a tap is one run */
    const hc_tile tile = {first, rows, 0, padded};
    int8_t *high = job->limbs > 1 ? job->decoded + job->at_once * padded : NULL;
    const hc_int_tile out = {.limb = {job->decoded, high}, .ld = padded, .row_scale = job->scales + first};
    hc_decode_int_tile(job->conv->run, &w->format, geometry, &w->components, &tile, HC_INT_FOLDED, &out);
    for (int64_t f = 0; f < rows && step > 1; f++)
        for (int64_t t = 0; t < taps; t++) {
            job->decoded[f * taps + t] = job->decoded[f * padded + t * step];
            if (high)
                high[f * taps + t] = high[f * padded + t * step];
        }
}

/* The panel that begins at `memory`. */
static void use_panel(hc_depthwise_codes_job *job, void *memory) {
    job->panel = memory;
    job->bytes = memory;
    job->init = (int32_t *)(void *)((uint8_t *)memory + hc_round_up(job->filters, LANES) * filter_bytes(job));
}

static void load_filters(const hc_depthwise_codes_job *job) {
    const hc_conv_shape *s = &job->conv->shape;
    const int64_t taps = s->r * s->s;
    if (!job->block)
        memset(job->panel, 0, (size_t)job->panel_bytes);
    hc_filters context;
    const hc_source w = hc_filter_source(job->conv, 0, job->filters, &context);
    const hc_kernel *packed = hc_product_line(HC_ORDER_FOLDED, false, false, NULL, job->conv->run);
    if (job->limbs > 1 || w.sparse || !hc_prepacked_fits(w.prepacked, HC_ORDER_FOLDED, &w, packed, 1))
        packed = NULL;
    const int8_t *high = job->limbs > 1 ? job->decoded + job->at_once * s->geometry.padded : NULL;
    for (int64_t first = 0; first < job->filters; first += job->at_once) {
        const int64_t rows = hc_min(job->at_once, job->filters - first);
        read_codes(job, &w, packed, first, rows, taps);
        for (int64_t f = 0; f < rows && job->block; f += LANES)
            load_lanes(job, first + f, hc_min(LANES, rows - f), job->decoded + f * taps);
        for (int64_t f = 0; f < rows && !job->block; f++)
            load_filter(job, first + f, taps, job->decoded + f * taps, high ? high + f * taps : NULL);
    }
}

static void multiply_task(void *context, int64_t task, int thread) {
    const hc_depthwise_codes_job *job = context;
    const hc_codes *codes = &job->codes;
    const hc_pixels *answers = &codes->answers;
    const int64_t width = job->conv->shape.out_width, step = job->conv->window->stride[1] * codes->depth;
    /* about equal parts: a kernel takes longest for the few channels that do not fill a register */
    const int64_t at_once = hc_round_up(hc_ceil_div(job->filters, hc_ceil_div(job->filters, PART)), LANES);
    (void)thread;
    for (int64_t q = 0; q < width; q += ANSWERS) {
        const int n = (int)hc_min(ANSWERS, width - q);
        const void *rows[ANSWERS];
        float scales[ANSWERS], values[ANSWERS * PART];
        int32_t sums[ANSWERS * PART];
        hc_code_windows(codes, 0, task * width + q, n, rows, scales);
        for (int64_t filter = 0; filter < job->filters; filter += at_once) {
            const int64_t part = hc_min(at_once, job->filters - filter);
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

/* Computes `down` rows of outputs, as many as a block has, and all columns. */
static void blocks_task(void *context, int64_t task, int thread) {
    const hc_depthwise_codes_job *job = context;
    const hc_codes *codes = &job->codes;
    const hc_pixels *answers = &codes->answers;
    const int64_t width = job->conv->shape.out_width, per = hc_ceil_div(answers->n_rows, job->block->mr);
    const int64_t row = task % per * job->block->mr, first = (task / per * answers->n_rows + row) * width;
    const int side = (int)job->conv->shape.r;
    const int down = (int)hc_min(job->block->mr, answers->n_rows - row), stride = (int)job->conv->window->stride[0];
    const hc_conv_link *link = job->conv->link;
    const bool finishes = job->conv->bias || job->conv->relu;
    (void)thread;
    HC_ASSUME(down <= DOWN);
    for (int64_t q = 0; q < width; q += ACROSS) {
        const int n = (int)hc_min(ACROSS, width - q);
        const void *corner[ACROSS];
        float scales[ACROSS], values[ACROSS * PART], *rows[DOWN];
        _Alignas(HC_CACHE_LINE) int32_t sums[DOWN * ACROSS * PART];
        int64_t lds[DOWN];
        hc_link_rows linked[DOWN];
        hc_code_windows(codes, 0, first + q, n, corner, scales);
        for (int i = 0; i < down; i++)
            if (link)
                hc_link_begin(answers, first + i * width + q, n, &linked[i]);
            else
                rows[i] = hc_answers_at(answers, first + i * width + q, n, 0, &lds[i]);
        for (int64_t filter = 0; filter < job->filters; filter += PART) {
            const int64_t part = hc_min(PART, job->filters - filter);
            const uint8_t *x = (const uint8_t *)corner[0] + filter;
            const int8_t *panel = job->bytes + filter * filter_bytes(job);
            if (side == 3)
                job->block->fn.depthwise3_s8(stride, down, n, x, codes->row_step, codes->depth, panel,
                                             job->init + filter, part, sums, ACROSS * PART, PART);
            else
                job->block->fn.depthwise_wide_s8(side, stride, down, n, x, codes->row_step, codes->depth, panel,
                                                 job->init + filter, part, sums, ACROSS * PART, PART);
            for (int i = 0; i < down; i++) {
                if (link) {
                    hc_link_sums(answers, &linked[i], n, filter, part, sums + i * ACROSS * PART, PART, scales[0],
                                 job->scales + filter);
                    continue;
                }
                float *place = rows[i] ? rows[i] + filter : values;
                const int64_t ld = rows[i] ? lds[i] : PART;
                job->dequantize(n, part, sums + i * ACROSS * PART, PART, scales, job->scales + filter, place, ld);
                if (place == values || finishes)
                    hc_write_answers(answers, first + i * width + q, n, filter, part, place, ld);
            }
        }
    }
}

hc_status hc_conv_depthwise_codes_prepack(const hc_convolution *conv, hc_prepacked_filters *to, hc_error *error) {
    hc_depthwise_codes_job job;
    plan(&job, conv);
    job.decoded = hc_alloc_aligned(filters_memory(&job));
    if (!job.decoded)
        return hc_fail(error, HC_MEMORY, "prepack: not enough memory for filters");
    use_panel(&job, hc_prepacked_panels_to(to));
    job.scales = hc_prepacked_scales_to(to);
    load_filters(&job);
    hc_free_aligned(job.decoded);
    return HC_OK;
}

hc_status hc_conv_depthwise_codes_run(const hc_convolution *conv, hc_error *error) {
    hc_depthwise_codes_job job;
    uint8_t *memory = hc_alloc_aligned(plan(&job, conv));
    hc_status status = hc_codes_begin(&job.codes, error);
    if (status == HC_OK && !memory)
        status = hc_fail(error, HC_MEMORY, "conv2d: not enough memory for filters");
    if (status == HC_OK) {
        const hc_conv_shape *s = &conv->shape;
        job.tap = (int64_t *)(void *)memory;
        for (int64_t t = 0; t < 2 * job.pairs; t++)
            job.tap[t] = t < s->r * s->s ? hc_code_tap(&job.codes, t / s->s, t % s->s) : job.tap[t - 1];
        if (job.ready) {
            use_panel(&job, (void *)job.ready);
            job.scales = (float *)hc_prepacked_filter_scales(conv);
        } else {
            use_panel(&job, memory + hc_round_up(2 * job.pairs * (int64_t)sizeof *job.tap, HC_CACHE_LINE));
            job.scales = (float *)(void *)((uint8_t *)job.panel + job.panel_bytes);
            job.decoded = (int8_t *)(job.scales + job.filters);
            load_filters(&job);
        }
    }
    for (int64_t band = 0; status == HC_OK && band < job.codes.n_bands; band++) {
        status = hc_codes_band(&job.codes, band, error);
        const hc_pixels *answers = &job.codes.answers;
        const int64_t tasks = answers->n_images * hc_ceil_div(answers->n_rows, job.block ? job.block->mr : 1);
        if (status == HC_OK)
            hc_parallel(conv->run->n_threads, tasks, job.block ? blocks_task : multiply_task, &job);
    }
    hc_codes_free(&job.codes);
    hc_free_aligned(memory);
    return status;
}
