/* Images in the layout of integer kernels: x quantized to 8-bit codes, with one scale per image, contiguous channels
 * and zeros around the image. A window is then rows of adjacent codes at fixed offsets from its corner. Codes are
 * prepared in bands, some images or some rows of one.
 *
 * Memory: BAND_BYTES per thread for a band, or one row of windows; two lines per thread; and the packed codes of the
 * images of a band if they are not made line by line (images.h).
 */
#ifndef HC_CONV_CODES_H
#define HC_CONV_CODES_H

#include "ops/conv/pixels.h"
#include "ops/conv/quantized/images.h"

typedef struct {
    const hc_convolution *conv;
    int form;              /* of a code: HC_PANEL_U8 or HC_PANEL_S16 */
    int64_t planes, depth; /* a pixel of a plane has `depth` channels */
    int64_t strides[5];    /* of x: (image, plane, channel, h, w) */
    int64_t code_bytes;
    int64_t images, rows; /* of a whole band: images, rows of answers */
    int64_t n_bands;
    int64_t width, reach;                     /* columns of a padded line; lines that a window covers */
    int64_t height;                           /* lines of a whole band */
    int64_t row_step, plane_step, image_step; /* codes */
    hc_pixels answers;                        /* outputs of the current band; no other field of it is set */
    bool in_place;
    int64_t thread_bytes, values_at;
    const uint8_t *codes; /* of the band: in memory, or those of a link */
    uint8_t *memory, *own;
    float *line_scale, *scale; /* of the band's lines, of its images */
    uint32_t *largest;         /* magnitudes of lines, as bits */
} hc_codes;

/* HC_CONV_FOLDED needs activations as integers of 8 bits, filters of at most `limbs` limbs of 8 bits (one or two), and
 * one scale per row; filters have a pattern only if `patterns`. Returns NULL, or the reason why this does not hold. */
const char *hc_codes_refuse(const hc_convolution *conv, int limbs, bool patterns);
/* Chooses the layout for kernels with rows of `form`. Formats without groups have one plane of all channels, otherwise
 * each group has a plane. The rows of outputs of a band are a multiple of `step` if that many fit. Returns false if one
 * row of windows takes more than 16 MiB. */
bool hc_codes_plan(hc_codes *codes, const hc_convolution *conv, int form, bool by_groups, int64_t step);
int64_t hc_codes_bytes(const hc_codes *codes);
/* Allocates the memory. The plan must not be moved until hc_codes_free, even if this fails. */
hc_status hc_codes_begin(hc_codes *codes, hc_error *error);
hc_status hc_codes_band(hc_codes *codes, int64_t band, hc_error *error);
void hc_codes_free(hc_codes *codes);

/* Offset of tap (r, s) from a window's corner. */
static inline int64_t hc_code_tap(const hc_codes *codes, int64_t r, int64_t s) {
    const int64_t *dilation = codes->conv->window->dilation;
    return r * dilation[0] * codes->row_step + s * dilation[1] * codes->depth;
}
/* Corners of the windows of answers first .. first + n of the band in a group, and the scales of their images. */
void hc_code_windows(const hc_codes *codes, int64_t group, int64_t first, int n, const void **rows, float *scales);

#endif
