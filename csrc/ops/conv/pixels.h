/* Images in the layout of kernels: the channels of a pixel contiguous, float32. If x has this layout, it is read in
 * place, all at once. Otherwise bands of x are copied, some images or some rows of one: as many as fit into BAND_BYTES
 * per thread, at least one row of outputs. Few channels are copied with padding, so that the taps of a filter's row are
 * one run, unless the padding is far more than the row. For Winograd's algorithm with stride 2 they are copied as
 * phases: a pixel then has the values of 2 x 2 pixels of the padded image.
 */
#ifndef HC_PIXELS_H
#define HC_PIXELS_H

#include "ops/conv/convolution.h"

typedef struct {
    const hc_convolution *conv;
    bool copies, joins; /* joins: a run is (s, c), not c */
    /* copies have 4 C values per pixel, those of (row, column) 2 h + (0, 0, 1, 1), 2 w + (1, 0, 0, 1) */
    bool phases;
    int64_t taps, run;         /* of a window of one group */
    int64_t n_bands, band;     /* the one at hand */
    int64_t images, rows;      /* of outputs of a whole band */
    int64_t image, n_images;   /* of the band at hand */
    int64_t row, n_rows;       /* its rows of answers */
    int64_t answers;           /* pixels of answers in it */
    int64_t top, height, left; /* copies: first row of x, number of rows, columns before the image */
    const char *data;
    int64_t image_step, row_step, pixel_step; /* bytes */
    int64_t together;                         /* rows that are copied at once, as one */
    int64_t bytes, stage_bytes;               /* of memory */
    float *memory, *zeros;
    /* outputs of the band with contiguous filters, until hc_pixels_end writes them to planes; otherwise NULL */
    float *stage;
    int64_t stage_step[4]; /* bytes, as the steps of a view */
} hc_pixels;

/* NULL, or why no band of `rows` rows of the image is copied. Depends on the shape alone, since the choice of an
 * algorithm changes bits. */
const char *hc_wide_rows(const hc_convolution *conv, int64_t rows);
/* may_join: runs may be joined. The rows of outputs in a band are a multiple of `step`. */
void hc_pixels_init(hc_pixels *pixels, const hc_convolution *conv, bool may_join, int64_t step);
/* The same without joined runs, and outputs have contiguous filters until the end of a band, if their planes are
 * contiguous in the result. */
void hc_pixels_stage(hc_pixels *pixels, const hc_convolution *conv, int64_t step);
/* The same as phases, for stride 2. Returns false, without doing anything, if there are many channels or groups. */
bool hc_phases_init(hc_pixels *pixels, const hc_convolution *conv, int64_t step);
bool hc_pixels_alloc(hc_pixels *pixels);
void hc_pixels_free(hc_pixels *pixels);
/* Makes band `band` the current one. */
void hc_pixels_band(hc_pixels *pixels, int64_t band);

/* Writes the outputs of the band to the result, if they are kept in planes there. */
void hc_pixels_end(hc_pixels *pixels);
/* Bytes from an image, a filter, a row and a column of outputs to the next, where tiles are written. */
static inline const int64_t *hc_answer_steps(const hc_pixels *p) {
    return p->stage_bytes ? p->stage_step : p->conv->out->strides;
}

/* Start of the values of (image of the band, h, w of x); zeros outside. */
static inline const float *hc_pixel(const hc_pixels *p, int64_t image, int64_t h, int64_t w) {
    const bool inside = h >= 0 && h < p->conv->shape.height && w >= -p->left && w < p->conv->shape.width + p->left;
    if (!inside)
        return p->zeros;
    return (const float *)(const void *)(p->data + image * p->image_step + (h - p->top) * p->row_step +
                                         (w + p->left) * p->pixel_step);
}

/* Starts of the windows of outputs first .. first + n of the band, from channel `channel` on: rows[t * stride + i]. */
void hc_windows(const hc_pixels *pixels, int64_t channel, int64_t first, int64_t n, int stride, const float **rows);

/* Writes outputs of the band to `out`: values[i * ld + j] is output first + i, filter first_filter + j. Adds the bias
 * and applies the ReLU; in place if hc_answers_at returns an address. */
void hc_write_answers(const hc_pixels *pixels, int64_t first, int n, int64_t first_filter, int64_t filters,
                      const float *values, int64_t ld);
/* For a link: outputs first .. first + n of the band, at most 16; then sums of some of their filters, which have the scale of
 * x and those of the filters. */
typedef struct {
    hc_link_tile tile;
    uint8_t *codes[HC_LINK_ROWS];
    hc_link_s32_fn *kernel;
} hc_link_rows;
void hc_link_begin(const hc_pixels *pixels, int64_t first, int n, hc_link_rows *rows);
void hc_link_sums(const hc_pixels *pixels, const hc_link_rows *rows, int n, int64_t filter, int64_t filters,
                  const int32_t *sums, int64_t ld, float scale, const float *scales);
/* The address of these outputs if they have a constant stride and filters are contiguous; otherwise NULL. */
float *hc_answers_at(const hc_pixels *pixels, int64_t first, int n, int64_t first_filter, int64_t *ld);
/* Prefetches the cache lines of a tile of outputs that is written soon. */
static inline void hc_fetch_answers(const float *tile, int n, int64_t columns, int64_t ld) {
    for (int i = 0; i < n; i++, tile += ld)
        for (int64_t j = 0; j < columns; j += HC_CACHE_LINE / (int64_t)sizeof *tile)
            __builtin_prefetch(tile + j, 1);
}

#endif
