/* Winograd's convolution of 3 x 3, stride 1 (Lavin, Gray, CVPR 2016): y = A^T [sum_c (G g G^T) (B^T d B)] A, tiles of m x m
 * answers from n x n pixels, n = m + 2; of 1 x 3 and 3 x 1 the same in one dimension, m answers from n pixels. Each value of a
 * transformed tile is a product over the channels (tiles.h). heterocompute/reference/transforms/winograd.py is the definition of every bit.
 */
#include "ops/conv/tiles.h"

enum {
    FILTER_BYTES = 16 << 20,
    ALL_TILES_BYTES = 4 << 20,
    MOST_PANEL = 64 << 20, /* of one panel of filters */
    MAX_PIXELS = 64,       /* n^2 of m = 6 */
};

static void transform_input(const hc_tiles *tiles, const hc_tile_place *at, float *to, int64_t step, float *work) {
    (void)work;
    const hc_window *window = tiles->conv->window;
    const int64_t channel = tiles->group * tiles->conv->shape.group_channels;
    const int width = tiles->tiling.width;
    const float *pixel[MAX_PIXELS] = {NULL};
    for (int i = 0; i < tiles->tiling.height; i++)
        for (int j = 0; j < width; j++)
            pixel[i * width + j] = hc_pixel(&tiles->pixels, at->image, at->p - window->pad_before[0] + i,
                                            at->q - window->pad_before[1] + j) +
                                   channel;
    HC_PICK(winograd_input_f32, tiles->conv->run)
    (tiles->tiling.m, hc_winograd_dims(&tiles->conv->shape), pixel, tiles->conv->shape.group_channels, to, step);
}

static void transform_panel(const hc_tiles *tiles, int64_t panel, float *to, int64_t step, void *scratch, float *work) {
    (void)work;
    const hc_convolution *conv = tiles->conv;
    uint8_t *taps = scratch;
    hc_filter_panel(&tiles->filters, panel, scratch, taps + tiles->filters.side.limb_bytes);
    const int64_t count = conv->shape.group_channels * tiles->kernel->nr;
    HC_PICK(winograd_filter_f32, conv->run)
    (tiles->tiling.m, hc_winograd_dims(&conv->shape), scratch, count, count, to, step);
}

static void transform_output(const hc_tiles *tiles, const float *sums, int64_t step, int64_t columns, const float *bias,
                             const hc_tile_answers *answers, float *work) {
    (void)work;
    float *answer[MAX_PIXELS] = {NULL};
    for (int64_t p = 0; p < answers->rows; p++)
        for (int64_t q = 0; q < answers->columns; q++)
            answer[p * tiles->tiling.columns + q] = answers->to + p * answers->row_step + q * answers->pixel_step;
    HC_PICK(winograd_output_f32, tiles->conv->run)
    (tiles->tiling.m, hc_winograd_dims(&tiles->conv->shape), sums, step, columns, bias, tiles->conv->relu, answer);
}

static hc_conv_work work_of(hc_tiles *tiles, const hc_convolution *conv, int m) {
    const hc_conv_shape *s = &conv->shape;
    const int rows = s->r == 3 ? m : 1, columns = s->s == 3 ? m : 1, dims = hc_winograd_dims(s);
    const hc_tiling tiling = {.rows = rows,
                              .columns = columns,
                              .height = rows + (int)s->r - 1,
                              .width = columns + (int)s->s - 1,
                              .places = hc_winograd_places(s, m),
                              .filter_bytes = FILTER_BYTES,
                              .all_tiles_bytes = ALL_TILES_BYTES,
                              .m = m,
                              .input = transform_input,
                              .panel = transform_panel,
                              .output = transform_output};
    hc_tiles_init(tiles, conv, &tiling);
    /* A value of a tile or a filter that is transformed takes as long as so many products a dimension: the most with which no
     * choice between direct, F(2) and F(4) of 51 costs more than a tenth, 16 to 512 channels of 1 to 32 groups at 7 x 7 to
     * 56 x 56; an AMD EPYC of family 25 (Zen 4, AVX-512), one thread, 2026-11. */
    enum { TILE_VALUE = 8, FILTER_VALUE = 8, LANES = 16 /* of channels or filters that are as fast as one */ };
    const int64_t in_image = hc_ceil_div(s->out_height, rows) * hc_ceil_div(s->out_width, columns);
    const int64_t groups = conv->window->groups, filled = hc_round_up(s->filters / groups, LANES) * groups;
    const double all = (double)s->n * (double)in_image, c = (double)s->group_channels, k = (double)s->filters;
    const double lanes = (double)(hc_round_up(s->group_channels, LANES) * groups + filled);
    const double values = dims * (TILE_VALUE * all * lanes + FILTER_VALUE * k * c);
    return (hc_conv_work){(double)tiling.places * (all * c * (double)filled + values), tiles->bytes};
}

static const char *refuses(const hc_convolution *conv, int m) {
    const hc_conv_shape *s = &conv->shape;
    const hc_window *window = conv->window;
    if (hc_winograd_dims(s) == 0 || window->stride[0] != 1 || window->stride[1] != 1 || window->dilation[0] != 1 ||
        window->dilation[1] != 1)
        return "it is for filters of 3 x 3, 1 x 3 and 3 x 1 with stride and dilation 1";
    if (conv->activations)
        return hc_winograd_codes_refuse(conv, m);
    if (s->group_channels == 0)
        return "there is nothing to sum";
    if (s->group_channels > MOST_PANEL / (hc_winograd_places(s, m) * HC_TILE_MAX_NR * (int64_t)sizeof(float)))
        return "transformed filters of so many channels take too much memory";
    return NULL;
}

#define HC_WINOGRAD(m)                                                                                                 \
    const char *hc_conv_winograd##m##_refuses(const hc_convolution *conv) { return refuses(conv, m); }                 \
    hc_conv_work hc_conv_winograd##m##_work(const hc_convolution *conv) {                                              \
        hc_tiles tiles;                                                                                                \
        return conv->activations ? hc_winograd_codes_work(conv, m) : work_of(&tiles, conv, m);                         \
    }                                                                                                                  \
    hc_status hc_conv_winograd##m##_run(const hc_convolution *conv, hc_error *error) {                                 \
        hc_tiles tiles;                                                                                                \
        if (conv->activations)                                                                                         \
            return hc_winograd_codes_run(conv, m, error);                                                              \
        work_of(&tiles, conv, m);                                                                                      \
        return hc_tiles_run(&tiles, error);                                                                            \
    }                                                                                                                  \
    hc_filter_form hc_conv_winograd##m##_form(const hc_convolution *conv) {                                            \
        hc_tiles tiles;                                                                                                \
        if (conv->activations)                                                                                         \
            return hc_winograd_codes_form(conv, m);                                                                    \
        work_of(&tiles, conv, m);                                                                                      \
        return tiles.form;                                                                                             \
    }                                                                                                                  \
    hc_status hc_conv_winograd##m##_prepack(const hc_convolution *conv, hc_prepacked_filters *to, hc_error *error) {   \
        hc_tiles tiles;                                                                                                \
        if (conv->activations)                                                                                         \
            return hc_winograd_codes_prepack(conv, m, to, error);                                                      \
        work_of(&tiles, conv, m);                                                                                      \
        return hc_tiles_prepack(&tiles, to, error);                                                                    \
    }
HC_WINOGRAD(2)
HC_WINOGRAD(4)
HC_WINOGRAD(6)
