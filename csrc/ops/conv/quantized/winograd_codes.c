/* Winograd's convolution of integers, F(2 x 2) and F(4 x 4, 3 x 3), exact. 8-bit codes (codes.h) are transformed to
 * int16, and so are filters, by integer multiples of G's rows. Sums, outputs and the division by these multiples are
 * modulo 2^32. The division loses some high bits of an output. So channels are summed in blocks whose outputs fit the
 * remaining bits, and the outputs of all blocks are added. heterocompute/reference/transforms/winograd.py is the
 * definition.
 *
 * Memory: tiles.h, and the codes.
 */
#include "kernels/kernel.h"
#include "ops/conv/tiles.h"

#include <string.h>

enum {
    FILTER_BYTES = 16 << 20,
    ALL_TILES_BYTES = 4 << 20,
    MOST_PANEL = 64 << 20, /* of one panel of filters */
    MOST_ANSWERS = 16,     /* of a tile, m 4 */
    MOST_PLACES = 36,
};

typedef struct {
    hc_tiles tiles; /* must be the first field, since the functions of tiles receive it */
    hc_codes codes;
    int64_t blocks, block; /* of channels: number of blocks, and channels of each, an even number */
    float *scales;         /* of filters */
} hc_winograd_codes_job;

static const hc_winograd_codes_job *job_of(const hc_tiles *tiles) { return (const void *)tiles; }

static void transform_input(const hc_tiles *tiles, const hc_tile_place *at, float *to, int64_t step, float *work) {
    (void)work;
    const hc_winograd_codes_job *job = job_of(tiles);
    const hc_codes *codes = &job->codes;
    const int n = tiles->tiling.width;
    const int64_t line = at->p - codes->answers.row, lines = codes->answers.n_rows + codes->reach - 1;
    const int16_t *first = (const int16_t *)(const void *)codes->memory + at->image * codes->image_step +
                           tiles->group * codes->plane_step + line * codes->row_step + at->q * codes->depth;
    for (int64_t block = 0; block < job->blocks; block++) {
        const int64_t channel = block * job->block, count = hc_min(job->block, codes->depth - channel);
        const int16_t *pixel[MOST_PLACES];
        for (int i = 0; i < n; i++)
            for (int j = 0; j < n; j++) {
                /* Codes beyond the image affect only outputs that do not exist, so any code is correct. */
                const bool inside = line + i < lines && at->q + j < codes->width;
                pixel[i * n + j] = first + channel + (inside ? i * codes->row_step + j * codes->depth : 0);
            }
        int16_t *values = (int16_t *)(void *)(to + block * n * n * step);
        HC_PICK(winograd_input_s16, tiles->conv->run)(tiles->tiling.rows, 2, pixel, count, values, 2 * step);
        for (int place = 0; place < n * n && count < job->block; place++)
            memset(values + place * 2 * step + count, 0, (size_t)(job->block - count) * sizeof *values);
    }
}

/* Codes of a panel's filters, (tap, pair of channels, filter, channel of the pair), and their transforms. */
static void transform_panel(const hc_tiles *tiles, int64_t panel, float *to, int64_t step, void *scratch, float *work) {
    (void)work;
    const hc_winograd_codes_job *job = job_of(tiles);
    const hc_conv_shape *s = &tiles->conv->shape;
    const hc_source *w = &tiles->filters.source;
    const int64_t nr = tiles->kernel->nr, taps = s->r * s->s, columns = taps * s->group_channels;
    const int64_t first = panel * nr, filters = hc_min(nr, tiles->filters.filters - first), tap = job->block * nr;
    int16_t *rows = scratch, *words = rows + taps * tap;
    int8_t *codes = (int8_t *)(words + taps * tap);
    const hc_int_tile tile = {.limb = {codes}, .ld = columns, .row_scale = job->scales + tiles->filters.first + first};
    w->integers(w, HC_INT_FOLDED, first, filters, 0, columns, &tile);
    memset(words, 0, (size_t)(taps * tap) * sizeof *words);
    for (int64_t block = 0; block < job->blocks; block++) {
        const int64_t channel = block * job->block, count = hc_min(job->block, s->group_channels - channel);
        for (int64_t r = 0; r < filters * taps; r++) { /* (filter, tap) */
            const int8_t *from = codes + r * s->group_channels + channel;
            int16_t *to_row = rows + r * job->block;
            for (int64_t c = 0; c < count; c++)
                to_row[c] = from[c];
            memset(to_row + count, 0, (size_t)(job->block - count) * sizeof *to_row);
        }
        const int64_t row = taps * job->block;
        for (int64_t f = 0; f < filters; f += 16)
            HC_PICK(pack_x32, tiles->conv->run)
        (rows + f * row, 2 * row, (int)hc_min(16, filters - f), row / 2, words + 2 * f, (int)nr, 0);
        int16_t *panels = (int16_t *)(void *)(to + block * (tiles->tiling.places / job->blocks) * step);
        HC_PICK(winograd_filter_s16, tiles->conv->run)(tiles->tiling.rows, 2, words, tap, tap, panels, 2 * step);
    }
}

static void transform_output(const hc_tiles *tiles, const float *sums, int64_t step, int64_t columns, const float *bias,
                             const hc_tile_answers *answers, float *work) {
    const hc_winograd_codes_job *job = job_of(tiles);
    const hc_convolution *conv = tiles->conv;
    const int m = tiles->tiling.rows, nr = tiles->kernel->nr, values = m * m * nr;
    int32_t *whole = (int32_t *)(void *)work, *answer[MOST_ANSWERS];
    for (int64_t block = 0; block < job->blocks; block++) {
        int32_t *part = whole + (block ? values : 0);
        for (int i = 0; i < m * m; i++)
            answer[i] = part + i * nr;
        const float *from = sums + block * (tiles->tiling.places / job->blocks) * step;
        HC_PICK(winograd_output_s32, conv->run)(m, 2, (const int32_t *)(const void *)from, step, nr, answer);
        for (int i = 0; i < values && block; i++)
            whole[i] += part[i];
    }
    float scales[MOST_ANSWERS];
    for (int64_t q = 0; q < answers->columns; q++)
        scales[q] = job->codes.scale[answers->image];
    for (int64_t p = 0; p < answers->rows; p++) {
        float *to = answers->to + p * answers->row_step;
        HC_PICK(dequantize_s32, conv->run)
        (answers->columns, columns, whole + p * m * nr, nr, scales, job->scales + answers->filter, to,
         answers->pixel_step);
        for (int64_t q = 0; q < answers->columns && (bias || conv->relu); q++, to += answers->pixel_step)
            for (int64_t j = 0; j < columns; j++)
                to[j] = hc_finished(to[j], bias ? bias[j] : -0.0f, conv->relu);
    }
}

static const char *plan(hc_winograd_codes_job *job, const hc_convolution *conv, int m) {
    enum { PRODUCT = 128 * 128 * 9 /* of a channel, at most */ };
    const hc_conv_shape *s = &conv->shape;
    const int64_t n = m + 2, nr = HC_BEST(direct_s16, conv->run)->nr;
    const int64_t most = (INT32_MAX >> (m == 2 ? 2 : 6)) / PRODUCT / 2 * 2;
    *job = (hc_winograd_codes_job){.blocks = hc_ceil_div(s->group_channels, most)};
    job->block = hc_round_up(hc_ceil_div(s->group_channels, job->blocks), 2);
    if (s->group_channels > MOST_PANEL / (n * n * nr * (int64_t)sizeof(int16_t)))
        return "transformed filters of so many channels take too much memory";
    if (!hc_codes_plan(&job->codes, conv, HC_PANEL_S16, true, m))
        return "a row of windows takes more than 16 MiB";
    const int64_t values = s->r * s->s * nr;
    const hc_tiling tiling = {.rows = m,
                              .columns = m,
                              .height = (int)n,
                              .width = (int)n,
                              .places = job->blocks * n * n,
                              .units = job->block / 2,
                              .codes = &job->codes,
                              .packing_bytes = values * (4 * job->block + s->group_channels),
                              .work_floats = 2 * m * m * nr,
                              .filter_bytes = FILTER_BYTES,
                              .all_tiles_bytes = ALL_TILES_BYTES,
                              .input = transform_input,
                              .panel = transform_panel,
                              .output = transform_output};
    hc_tiles_init(&job->tiles, conv, &tiling);
    return NULL;
}

static const char *refuses(const hc_convolution *conv, int m) {
    hc_winograd_codes_job job;
    enum { LONGEST = 65536 }; /* products of 8-bit values whose sum fits int32 */
    const char *reason = hc_codes_refuse(conv, 1, false);
    if (!reason && conv->shape.group_channels > LONGEST / 9)
        reason = "filters of more than 65536 values sum to more than 32 bits";
    const hc_window *window = conv->window;
    if (!reason && (conv->shape.r != 3 || conv->shape.s != 3 || window->stride[0] != 1 || window->stride[1] != 1 ||
                    window->dilation[0] != 1 || window->dilation[1] != 1))
        reason = "of integers it is for filters of 3 x 3 with stride 1, without dilation";
    return reason ? reason : plan(&job, conv, m);
}

static hc_conv_work work_of(const hc_convolution *conv, int m) {
    /* ALONE: a channel that does not fill lanes takes as long as this many that do. Transformed filters of more than
     * FAR bytes are read from memory; Zen 3, AVX2, 2026-11, 256 and 512 channels at 7 x 7 and 14 x 14. Fewer channels than
     * lanes take about as long as one and a half times the lanes: the costs are of 16 channels and more, and 1 to 12
     * channels took 1.3 to 2.1 times as long at 28 x 28 and 56 x 56; Zen 4, AVX2, 2026-11. */
    enum { LANES = 16 /* filters that take as long as one */, ALONE = 8, FAR = 16 << 20 };
    const hc_conv_shape *s = &conv->shape;
    hc_winograd_codes_job job;
    plan(&job, conv, m);
    const int64_t in_image = hc_ceil_div(s->out_height, m) * hc_ceil_div(s->out_width, m),
                  groups = conv->window->groups;
    const int64_t alone = s->group_channels % LANES, channels = groups * (s->group_channels - alone + ALONE * alone);
    const double all = (double)s->n * (double)in_image, c = (double)s->group_channels, k = (double)s->filters;
    const double filled = (double)(hc_round_up(s->filters / groups, LANES) * groups);
    const double places = (double)((m + 2) * (m + 2));
    const double weights = places * k * c, as_long = c < LANES ? 1.5 * LANES : c;
    const bool far = weights * (double)sizeof(int16_t) > (double)FAR, ready = conv->w->packed->prepacked;
    return (hc_conv_work){.products = places * all * as_long * filled,
                          .values = places * all * ((double)channels + filled),
                          .filters = ready ? 0 : weights,
                          .kept = ready && far ? weights : 0,
                          .moved = hc_conv_moved(conv),
                          .bytes = job.tiles.bytes};
}

static hc_status run(const hc_convolution *conv, int m, hc_error *error) {
    hc_winograd_codes_job job;
    plan(&job, conv, m);
    const int64_t bytes = conv->shape.filters * (int64_t)sizeof(float);
    job.scales = hc_alloc_aligned(bytes);
    if (!job.scales)
        return hc_fail(error, HC_MEMORY, "conv2d: not enough memory for the scales of filters");
    if (job.tiles.packed)
        memcpy(job.scales, hc_prepacked_filter_scales(conv), (size_t)bytes);
    const hc_status status = hc_tiles_run(&job.tiles, error);
    hc_free_aligned(job.scales);
    return status;
}

static hc_filter_form form_of(const hc_convolution *conv, int m) {
    hc_winograd_codes_job job;
    plan(&job, conv, m);
    return job.tiles.form;
}

static hc_status prepack(const hc_convolution *conv, int m, hc_prepacked_filters *to, hc_error *error) {
    hc_winograd_codes_job job;
    plan(&job, conv, m);
    job.scales = hc_prepacked_scales_to(to);
    return hc_tiles_prepack(&job.tiles, to, error);
}

#define HC_WINOGRAD_CODES(m)                                                                                           \
    const char *hc_conv_winograd##m##_codes_refuses(const hc_convolution *conv) { return refuses(conv, m); }           \
    hc_conv_work hc_conv_winograd##m##_codes_work(const hc_convolution *conv) { return work_of(conv, m); }             \
    hc_status hc_conv_winograd##m##_codes_run(const hc_convolution *conv, hc_error *error) {                           \
        return run(conv, m, error);                                                                                    \
    }                                                                                                                  \
    hc_filter_form hc_conv_winograd##m##_codes_form(const hc_convolution *conv) { return form_of(conv, m); }           \
    hc_status hc_conv_winograd##m##_codes_prepack(const hc_convolution *conv, hc_prepacked_filters *to,                \
                                                  hc_error *error) {                                                   \
        return prepack(conv, m, to, error);                                                                            \
    }
HC_WINOGRAD_CODES(2)
HC_WINOGRAD_CODES(4)
