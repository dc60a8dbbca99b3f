/* Winograd's convolution (Lavin, Gray, CVPR 2016): y = A^T [sum_c (G g G^T) (B^T d B)] A, tiles of m x m outputs from n
 * x n pixels, r x r taps, n = m + r - 1 = 4, 6 or 8; for 1 x 3 and 3 x 1 filters the same in one dimension, m outputs
 * from n pixels. Each value of a transformed tile is a product over the channels (tiles.h).
 * heterocompute/reference/transforms/winograd.py is the definition of every bit.
 *
 * With stride 2 (Yepez, Ko, IEEE TVLSI 28(4), 2020) the rows and the columns of an image have two phases, even and odd,
 * and so do the taps of a filter of 3, 5 or 7: (taps + 1) / 2 even taps and one odd tap less. An output is the sum of
 * four convolutions with stride 1, one per phase, and therefore of their products at each point: 4 C channels become
 * one tile. Phases with one tap less have no value at the point at infinity. In the order (0, 1), (0, 0), (1, 0), (1,
 * 1) the phases that have one are adjacent.
 */
#include "ops/conv/tiles.h"

enum {
    FILTER_BYTES = 16 << 20,
    ALL_TILES_BYTES = 4 << 20,
    MOST_PANEL = 64 << 20, /* of one panel of filters */
    MAX_PIXELS = 64,       /* n^2 of n = 8 */
    MAX_TAPS = 16,
};

static const struct {
    int down, across;
} PHASES[2][4] = {{{0, 0}}, {{0, 1}, {0, 0}, {1, 0}, {1, 1}}}; /* by stride - 1 */

static int stride_of(const hc_convolution *conv) { return (int)conv->window->stride[0]; }

static int dims_of(const hc_conv_shape *s) { return (s->r > 1) + (s->s > 1); }

static int side_of(const hc_tiles *tiles) { return (int)hc_max(tiles->tiling.height, tiles->tiling.width); }

/* Number of taps of a phase in a dimension with `taps` taps. */
static int taps_of(const hc_convolution *conv, int64_t taps) { return (int)hc_ceil_div(taps, stride_of(conv)); }

/* Addresses of the pixels of a tile, `stride` apart from (h, w) on; zeros outside of `rows` x `columns`. */
static void find_pixels(const hc_tiles *tiles, int64_t image, int stride, int64_t h, int64_t w, int64_t rows,
                        int64_t columns, int64_t channel, const float **pixel) {
    const hc_pixels *from = &tiles->pixels;
    const int height = tiles->tiling.height, width = tiles->tiling.width;
    for (int i = 0; i < height; i++) {
        const int64_t row = h + i * stride;
        const bool inside = row >= 0 && row < rows;
        const char *line = inside ? from->data + image * from->image_step + (row - from->top) * from->row_step : NULL;
        for (int j = 0; j < width; j++) {
            const int64_t column = w + j * stride;
            const bool seen = inside && column >= 0 && column < columns;
            pixel[i * width + j] =
                (seen ? (const float *)(const void *)(line + column * from->pixel_step) : from->zeros) + channel;
        }
    }
}

static void transform_input(const hc_tiles *tiles, const hc_tile_place *at, float *to, int64_t step, float *work) {
    (void)work;
    const hc_convolution *conv = tiles->conv;
    const hc_conv_shape *s = &conv->shape;
    const hc_pixels *from = &tiles->pixels;
    const int stride = stride_of(conv), dims = dims_of(s), n = side_of(tiles);
    const int64_t channels = s->group_channels, *before = conv->window->pad_before;
    const float *pixel[MAX_PIXELS];
    if (from->phases) {
        find_pixels(tiles, at->image, 1, at->p, at->q, from->top + from->height, s->out_width + tiles->tiling.r - 1, 0,
                    pixel);
        HC_PICK(winograd_input_f32, conv->run)(n, dims, pixel, from->run, to, step);
        return;
    }
    /* Rows that outputs of the band use. */
    const int64_t rows = hc_min(s->height, (from->row + from->n_rows - 1) * stride + s->r - before[0]);
    const int64_t columns = hc_min(s->width, (s->out_width - 1) * stride + s->s - before[1]);
    for (int phase = 0; phase < tiles->tiling.phases; phase++, to += channels) {
        find_pixels(tiles, at->image, stride, at->p * stride - before[0] + PHASES[stride - 1][phase].down,
                    at->q * stride - before[1] + PHASES[stride - 1][phase].across, rows, columns,
                    tiles->group * channels, pixel);
        HC_PICK(winograd_input_f32, conv->run)(n, dims, pixel, channels, to, step);
    }
}

static void transform_panel(const hc_tiles *tiles, int64_t panel, float *to, int64_t step, void *scratch, float *work) {
    (void)work;
    const hc_convolution *conv = tiles->conv;
    const hc_conv_shape *s = &conv->shape;
    const float *values = scratch;
    hc_filter_panel(&tiles->filters, panel, scratch, (uint8_t *)scratch + tiles->filters.side.limb_bytes);
    const int64_t count = s->group_channels * tiles->kernel->nr;
    const int stride = stride_of(conv), rows = taps_of(conv, s->r), columns = taps_of(conv, s->s);
    for (int phase = 0; phase < tiles->tiling.phases; phase++, to += count) {
        const float *tap[MAX_TAPS];
        for (int i = 0; i < rows; i++)
            for (int j = 0; j < columns; j++) {
                const int64_t down = i * stride + PHASES[stride - 1][phase].down;
                const int64_t across = j * stride + PHASES[stride - 1][phase].across;
                tap[i * columns + j] = down < s->r && across < s->s ? values + (down * s->s + across) * count : NULL;
            }
        HC_PICK(winograd_filter_f32, conv->run)
        (side_of(tiles), tiles->tiling.r, dims_of(s), tap, count, to, step);
    }
}

static void transform_output(const hc_tiles *tiles, const float *sums, int64_t step, int64_t columns, const float *bias,
                             const hc_tile_answers *answers, float *work) {
    (void)work;
    float *answer[MAX_PIXELS] = {NULL};
    for (int64_t p = 0; p < answers->rows; p++)
        for (int64_t q = 0; q < answers->columns; q++)
            answer[p * tiles->tiling.columns + q] = answers->to + p * answers->row_step + q * answers->pixel_step;
    HC_PICK(winograd_output_f32, tiles->conv->run)
    (side_of(tiles), tiles->tiling.r, dims_of(&tiles->conv->shape), sums, step, columns, bias, tiles->conv->relu,
     answer);
}

/* Work with tiles of n pixels in each dimension that has more than one tap. */
static hc_conv_work work_of(hc_tiles *tiles, const hc_convolution *conv, int n) {
    const hc_conv_shape *s = &conv->shape;
    const int stride = stride_of(conv), dims = dims_of(s), r = taps_of(conv, hc_max(s->r, s->s)), m = n - r + 1;
    const int rows = s->r > 1 ? m : 1, columns = s->s > 1 ? m : 1;
    const hc_tiling tiling = {.rows = rows,
                              .columns = columns,
                              .height = s->r > 1 ? n : 1,
                              .width = s->s > 1 ? n : 1,
                              .places = dims == 2 ? n * n : n,
                              .phases = stride * stride,
                              .filter_bytes = FILTER_BYTES,
                              .all_tiles_bytes = ALL_TILES_BYTES,
                              .m = m,
                              .r = r,
                              .input = transform_input,
                              .panel = transform_panel,
                              .output = transform_output};
    hc_tiles_init(tiles, conv, &tiling);
    enum { LANES = 16 /* channels or filters that take as long as one */ };
    const int64_t in_image = hc_ceil_div(s->out_height, rows) * hc_ceil_div(s->out_width, columns);
    const int64_t groups = conv->window->groups, filled = hc_round_up(s->filters / groups, LANES) * groups;
    const double all = (double)s->n * (double)in_image, c = (double)s->group_channels, k = (double)s->filters;
    /* Per channel: values of all phases, except those at infinity that some phases lack. */
    const double values = stride == 1 ? (double)tiling.places : (double)((2 * n - 1) * (2 * n - 1));
    const double channels = tiles->pixels.phases ? (double)tiles->tiling.units
                                                 : (double)(hc_round_up(s->group_channels, LANES) * groups) * values /
                                                       (double)tiling.places;
    return (hc_conv_work){.products = values * all * c * (double)filled,
                          .values = dims * all * (double)tiling.places * (channels + (double)filled),
                          .filters = dims * values * k * c,
                          .bytes = tiles->bytes};
}

static const char *refuses(const hc_convolution *conv, int n) {
    const hc_conv_shape *s = &conv->shape;
    const hc_window *window = conv->window;
    const int64_t stride = window->stride[0];
    const bool once = (s->r == 3 || s->r == 1) && (s->s == 3 || s->s == 1) && s->r * s->s > 1;
    const bool twice = s->r == s->s && (s->r == 3 || s->r == 5 || s->r == 7);
    if (window->stride[1] != stride || !(stride == 1 ? once : stride == 2 && twice) || window->dilation[0] != 1 ||
        window->dilation[1] != 1)
        return "it is for filters of 3 x 3, 1 x 3 and 3 x 1 with stride 1, and of 3 x 3, 5 x 5 and 7 x 7 with "
               "stride 2, without dilation";
    if (s->group_channels == 0)
        return "there is nothing to sum";
    if (taps_of(conv, s->r) == n)
        return "a tile of 4 x 4 pixels of each phase holds one answer of 7 x 7 filters";
    const int64_t places = (s->r > 1 ? n : 1) * (s->s > 1 ? n : 1) * stride * stride;
    if (s->group_channels > MOST_PANEL / (places * HC_TILE_MAX_NR * (int64_t)sizeof(float)))
        return "transformed filters of so many channels take too much memory";
    return hc_wide_rows(conv, s->r > 1 ? n * stride : 1);
}

static hc_status run(const hc_convolution *conv, int n, hc_error *error) {
    hc_tiles tiles;
    work_of(&tiles, conv, n);
    return hc_tiles_run(&tiles, error);
}

static hc_status prepack(const hc_convolution *conv, int n, hc_prepacked_filters *to, hc_error *error) {
    hc_tiles tiles;
    work_of(&tiles, conv, n);
    return hc_tiles_prepack(&tiles, to, error);
}

#define HC_WINOGRAD(m)                                                                                                 \
    const char *hc_conv_winograd##m##_refuses(const hc_convolution *conv) { return refuses(conv, m + 2); }             \
    hc_conv_work hc_conv_winograd##m##_work(const hc_convolution *conv) {                                              \
        hc_tiles tiles;                                                                                                \
        return work_of(&tiles, conv, m + 2);                                                                           \
    }                                                                                                                  \
    hc_status hc_conv_winograd##m##_run(const hc_convolution *conv, hc_error *error) {                                 \
        return run(conv, m + 2, error);                                                                                \
    }                                                                                                                  \
    hc_filter_form hc_conv_winograd##m##_form(const hc_convolution *conv) {                                            \
        hc_tiles tiles;                                                                                                \
        work_of(&tiles, conv, m + 2);                                                                                  \
        return tiles.form;                                                                                             \
    }                                                                                                                  \
    hc_status hc_conv_winograd##m##_prepack(const hc_convolution *conv, hc_prepacked_filters *to, hc_error *error) {   \
        return prepack(conv, m + 2, to, error);                                                                        \
    }
HC_WINOGRAD(2)
HC_WINOGRAD(4)
HC_WINOGRAD(6)
