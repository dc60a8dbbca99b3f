/* Images as a kernel reads them: the channels of a pixel side by side, float32. Where x lies so, it is read in place, all at
 * once; else bands of it are copied, some images or some rows of one, as many as fit BAND_BYTES a thread, one row of answers at
 * least. Few channels are copied with the padding beside them, so that the taps of a filter's row are one run, unless that is
 * far more than the row; or, for Winograd's algorithm with stride 2, as phases: a pixel then has the values of two by two pixels of
 * the padded image.
 */
#ifndef HC_PIXELS_H
#define HC_PIXELS_H

#include "ops/conv/convolution.h"

typedef struct {
    const hc_convolution *conv;
    bool copies, joins;    /* joins: a run is (s, c), not c */
    bool phases;           /* copies hold 4 C values a pixel, of (row, column) 2 h + (0, 0, 1, 1), 2 w + (1, 0, 0, 1) */
    int64_t taps, run;     /* of a window of one group */
    int64_t n_bands, band; /* the one at hand */
    int64_t images, rows;  /* of answers, of a whole band */
    int64_t image, n_images;   /* of the band at hand */
    int64_t row, n_rows;       /* its rows of answers */
    int64_t answers;           /* pixels of answers in it */
    int64_t top, height, left; /* copies: its first row of x, how many, columns before the image */
    const char *data;
    int64_t image_step, row_step, pixel_step; /* bytes */
    int64_t bytes;                            /* of memory */
    float *memory, *zeros;
} hc_pixels;

/* Why no band of `rows` rows of the image is copied, or NULL. By the shape alone: an algorithm that refuses may have had bits of
 * its own. */
const char *hc_wide_rows(const hc_convolution *conv, int64_t rows);
/* May runs be joined; rows of answers in a band are a multiple of `step`. */
void hc_pixels_init(hc_pixels *pixels, const hc_convolution *conv, bool may_join, int64_t step);
/* The same as phases, stride 2; false, and nothing done, where channels are many or in groups. */
bool hc_phases_init(hc_pixels *pixels, const hc_convolution *conv, int64_t step);
bool hc_pixels_alloc(hc_pixels *pixels);
void hc_pixels_free(hc_pixels *pixels);
/* Makes band `band` the one at hand. */
void hc_pixels_band(hc_pixels *pixels, int64_t band);

/* Where the values of (image of the band, h, w of x) begin; zeros outside. */
static inline const float *hc_pixel(const hc_pixels *p, int64_t image, int64_t h, int64_t w) {
    const bool inside = h >= 0 && h < p->conv->shape.height && w >= -p->left && w < p->conv->shape.width + p->left;
    if (!inside)
        return p->zeros;
    return (const float *)(const void *)(p->data + image * p->image_step + (h - p->top) * p->row_step +
                                         (w + p->left) * p->pixel_step);
}

/* Where the windows of answers first .. first + n of the band begin, channel `channel` on: rows[t * stride + i]. */
void hc_windows(const hc_pixels *pixels, int64_t channel, int64_t first, int64_t n, int stride, const float **rows);

/* Answers of the band into `out`: values[i * ld + j] is answer first + i, filter first_filter + j; finished. In place where
 * hc_answers_at gives a place. */
void hc_write_answers(const hc_pixels *pixels, int64_t first, int n, int64_t first_filter, int64_t filters,
                      const float *values, int64_t ld);
/* Where these answers lie themselves when they lie evenly, a filter beside the other; else NULL. */
float *hc_answers_at(const hc_pixels *pixels, int64_t first, int n, int64_t first_filter, int64_t *ld);
/* Lines of a tile of answers that is written soon, so that they arrive while it is summed. */
static inline void hc_fetch_answers(const float *tile, int n, int64_t columns, int64_t ld) {
    for (int i = 0; i < n; i++, tile += ld)
        for (int64_t j = 0; j < columns; j += HC_CACHE_LINE / (int64_t)sizeof *tile)
            __builtin_prefetch(tile + j, 1);
}

#endif
