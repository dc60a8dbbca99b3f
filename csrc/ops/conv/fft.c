/* Convolution by the Fourier transform: circular correlation of tiles of height x width pixels. Values for which the
 * filter does not wrap around are outputs (overlap-save); y = F^-1 [sum_c F(d) conj(F(g))]. A complex product is three
 * real ones, so a tile is 3 (height width / 2 + 2) products over the channels (tiles.h). With a stride s every s-th
 * value is used. A dilated filter is a larger filter with zeros. heterocompute/reference/transforms/fft.py is the
 * definition of every bit.
 *
 * The tile size is the fastest power of 2 that holds the filter; it depends on shapes alone.
 */
#include "ops/conv/tiles.h"

enum {
    /* with tiles below 32 MiB: glibc maps larger blocks anew in each call, and the kernel clears them */
    FILTER_BYTES = 16 << 20,
    A_PASS = 32 << 20, /* of filters, for the choice of tiles, which must not depend on the machine */
    ALL_TILES_BYTES = 16 << 20,
    SUM_BYTES = 1 << 20,
    MOST_PANEL = 128 << 20, /* of one panel of filters */
    MOST_NR = 32,
    SMALLEST = 8,
    LARGEST = 64,
    PARTS = 3,
};

static int64_t reach_of(const hc_convolution *conv, int i) {
    const int64_t taps = i ? conv->shape.s : conv->shape.r;
    return (taps - 1) * conv->window->dilation[i] + 1;
}

static int answers_of(const hc_convolution *conv, int i, int size) {
    return (int)((size - reach_of(conv, i)) / conv->window->stride[i] + 1);
}

/* Start of the pixels of a tile, and how many of them some output needs. */
static void clip(const hc_convolution *conv, int i, int64_t answer, int answers, int64_t *from, int *before,
                 int *count) {
    const hc_window *window = conv->window;
    const int64_t size = i ? conv->shape.width : conv->shape.height, step = window->stride[i];
    const int64_t out = i ? conv->shape.out_width : conv->shape.out_height, reach = reach_of(conv, i);
    const int64_t first = answer * step - window->pad_before[i];
    const int64_t end = hc_min(size, (out - 1) * step + reach - window->pad_before[i]);
    *before = (int)hc_min(hc_max(-first, 0), LARGEST);
    *from = first + *before;
    *count = (int)hc_max(0, hc_min(first + (answers - 1) * step + reach, end) - *from);
}

static void transform_input(const hc_tiles *tiles, const hc_tile_place *at, float *to, int64_t step, float *work) {
    const hc_convolution *conv = tiles->conv;
    const hc_tiling *tiling = &tiles->tiling;
    const hc_pixels *from = &tiles->pixels;
    const int64_t size = sizeof(float);
    hc_fft_pixels pixels = {
        .row_step = from->row_step / size, .pixel_step = from->pixel_step / size, .down = 1, .across = 1};
    int64_t h, w;
    clip(conv, 0, at->p, tiling->rows, &h, &pixels.top, &pixels.rows);
    clip(conv, 1, at->q, tiling->columns, &w, &pixels.left, &pixels.columns);
    if (!pixels.columns)
        pixels.rows = 0;
    pixels.values = pixels.rows ? hc_pixel(from, at->image, h, w) + tiles->group * conv->shape.group_channels : NULL;
    HC_PICK(fft_forward_f32, conv->run)
    (tiling->height, tiling->width, false, &pixels, conv->shape.group_channels, to, step, work);
}

static void transform_panel(const hc_tiles *tiles, int64_t panel, float *to, int64_t step, void *scratch, float *work) {
    const hc_convolution *conv = tiles->conv;
    const hc_conv_shape *s = &conv->shape;
    uint8_t *taps = scratch;
    hc_filter_panel(&tiles->filters, panel, scratch, taps + tiles->filters.side.limb_bytes);
    const int64_t count = s->group_channels * tiles->kernel->nr;
    const hc_fft_pixels pixels = {.values = scratch,
                                  .row_step = s->s * count,
                                  .pixel_step = count,
                                  .rows = (int)s->r,
                                  .columns = (int)s->s,
                                  .down = (int)hc_min(conv->window->dilation[0], LARGEST),
                                  .across = (int)hc_min(conv->window->dilation[1], LARGEST)};
    HC_PICK(fft_forward_f32, conv->run)
    (tiles->tiling.height, tiles->tiling.width, true, &pixels, count, to, step, work);
}

static void transform_output(const hc_tiles *tiles, const float *sums, int64_t step, int64_t columns, const float *bias,
                             const hc_tile_answers *answers, float *work) {
    const hc_convolution *conv = tiles->conv;
    const hc_fft_answers to = {.to = answers->to,
                               .row_step = answers->row_step,
                               .pixel_step = answers->pixel_step,
                               .rows = (int)answers->rows,
                               .columns = (int)answers->columns,
                               .down = (int)hc_min(conv->window->stride[0], LARGEST),
                               .across = (int)hc_min(conv->window->stride[1], LARGEST)};
    HC_PICK(fft_back_f32, conv->run)
    (tiles->tiling.height, tiles->tiling.width, sums, step, columns, bias, conv->relu, &to, work);
}

static int64_t places_of(int height, int width) { return PARTS * hc_fft_places(height, width); }

/* Work with tiles of height x width. */
static hc_conv_work work_with(const hc_convolution *conv, int height, int width) {
    enum { LANES = 16 /* channels or filters that take as long as one */ };
    const hc_conv_shape *s = &conv->shape;
    const int64_t groups = conv->window->groups, filled = hc_round_up(s->filters / groups, LANES);
    const int64_t in_image =
        hc_ceil_div(s->out_height, answers_of(conv, 0, height)) * hc_ceil_div(s->out_width, answers_of(conv, 1, width));
    const double tiles = (double)s->n * (double)in_image, c = (double)s->group_channels;
    const double places = (double)places_of(height, width), size = sizeof(float);
    const double tile_bytes = tiles * places * c * size, filter_bytes = places * c * (double)filled * size;
    const double passes = tile_bytes < ALL_TILES_BYTES ? 1 : (double)((int64_t)(filter_bytes / A_PASS) + 1);
    const double transformed = (double)(hc_round_up(s->group_channels, LANES) * groups) * passes;
    return (hc_conv_work){.products = places * tiles * c * (double)(filled * groups),
                          .values = (double)height * width * tiles * (transformed + (double)(filled * groups)),
                          .filters = (double)height * width * c * (double)(filled * groups)};
}

/* The fastest tile, the smaller if two are equally fast; false if none fits. Depends on shapes alone, since other tile
 * sizes have other bits. In one order it depends on the shape of one image. */
static bool choose(const hc_convolution *conv, int *height, int *width) {
    const hc_conv_shape *s = &conv->shape;
    hc_convolution one = *conv;
    if (conv->run->one_order)
        one.shape.n = hc_min(s->n, 1);
    const int64_t panel = PARTS * MOST_NR * (int64_t)sizeof(float) * s->group_channels;
    double least = 0;
    *height = 0;
    for (int h = s->r == 1 ? 1 : SMALLEST; h <= LARGEST; h = hc_max(2 * h, SMALLEST))
        for (int w = SMALLEST; w <= LARGEST; w *= 2) {
            if (reach_of(conv, 0) > h || reach_of(conv, 1) > w || hc_fft_places(h, w) > MOST_PANEL / panel)
                continue;
            const hc_conv_work work = work_with(&one, h, w);
            const double seconds = hc_conv_seconds(HC_CONV_ALIKE, HC_ALGORITHM_FLOATS_fft, &work);
            if (!*height || seconds < least)
                *height = h, *width = w, least = seconds;
        }
    return *height;
}

const char *hc_conv_fft_refuses(const hc_convolution *conv) {
    const hc_conv_shape *s = &conv->shape;
    int height, width;
    if (s->r * s->s * s->group_channels == 0)
        return "there is nothing to sum";
    if (reach_of(conv, 0) > LARGEST || reach_of(conv, 1) > LARGEST)
        return "filters reach over more than 64 pixels";
    if (s->group_channels > MOST_PANEL || !choose(conv, &height, &width))
        return "transformed filters of so many channels take too much memory";
    return hc_wide_rows(conv, height);
}

static hc_conv_work work_of(hc_tiles *tiles, const hc_convolution *conv) {
    int height = 0, width = 0;
    choose(conv, &height, &width);
    HC_ASSERT(height > 0);
    const hc_tiling tiling = {.rows = answers_of(conv, 0, height),
                              .columns = answers_of(conv, 1, width),
                              .height = height,
                              .width = width,
                              .places = places_of(height, width),
                              .panel_gap = 16, /* without the gap all positions would share a few cache sets */
                              .work_floats = hc_fft_work(height, width),
                              .filter_bytes = FILTER_BYTES,
                              .all_tiles_bytes = ALL_TILES_BYTES,
                              .sum_bytes = SUM_BYTES,
                              .input = transform_input,
                              .panel = transform_panel,
                              .output = transform_output};
    hc_tiles_init(tiles, conv, &tiling);
    hc_conv_work work = work_with(conv, height, width);
    work.bytes = tiles->bytes;
    return work;
}

hc_conv_work hc_conv_fft_work(const hc_convolution *conv) {
    hc_tiles tiles;
    return work_of(&tiles, conv);
}

hc_filter_form hc_conv_fft_form(const hc_convolution *conv) {
    hc_tiles tiles;
    work_of(&tiles, conv);
    return tiles.form;
}

hc_status hc_conv_fft_prepack(const hc_convolution *conv, hc_prepacked_filters *to, hc_error *error) {
    hc_tiles tiles;
    work_of(&tiles, conv);
    return hc_tiles_prepack(&tiles, to, error);
}

hc_status hc_conv_fft_run(const hc_convolution *conv, hc_error *error) {
    hc_tiles tiles;
    work_of(&tiles, conv);
    return hc_tiles_run(&tiles, error);
}
