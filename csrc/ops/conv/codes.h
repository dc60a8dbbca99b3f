/* Images as kernels of integers read them: x quantized, an image with one scale, to codes of 8 bits with the channels of a
 * pixel side by side and zeros around the image, so that a window is rows of neighbouring codes at fixed places from its
 * corner. Bands of it lie ready, some images or some rows of one.
 *
 * Where a code does not depend on its line but through the largest value of its image, an image is quantized line by line,
 * else whole. Memory: BAND_BYTES a thread for a band, or one row of windows, two lines a thread, and the packed codes of the
 * images of a band where they are quantized whole.
 */
#ifndef HC_CONV_CODES_H
#define HC_CONV_CODES_H

#include "ops/codec/encoder.h"
#include "ops/conv/pixels.h"

typedef struct {
    const hc_convolution *conv;
    hc_view view;          /* of x: (image, plane, channel, h, w) */
    int form;              /* of a code: HC_PANEL_U8 or HC_PANEL_S16 */
    int64_t planes, depth; /* a pixel of a plane has `depth` channels */
    int64_t code_bytes;
    int64_t images, rows; /* of a whole band: images, rows of answers */
    int64_t n_bands;
    int64_t width, reach;                     /* columns of a padded line; lines under a window */
    int64_t height;                           /* lines of a whole band */
    int64_t row_step, plane_step, image_step; /* codes */
    hc_pixels answers;                        /* where those of the band at hand go; nothing else of it is set */
    hc_encoder encoder;                       /* of images */
    hc_packed_context packed;
    hc_source source; /* the codes of the band's images */
    bool by_lines, in_place;
    hc_components codes;
    int64_t thread_bytes, values_at;
    uint8_t *memory, *own;
    float *line_scale, *scale; /* of the band's lines, of its images */
    uint32_t *largest;         /* magnitudes of lines, as bits */
} hc_codes;

/* Filters and activations as integers of 8 bits, one scale a row: NULL, or why not. */
const char *hc_codes_refuse(const hc_convolution *conv);
/* What lies how, for kernels with rows of `form`; a plane for each group, or one of all channels, which is for formats without
 * groups; rows of answers of a band are a multiple of `step` where so many fit. false where one row of windows takes more than
 * 16 MiB. */
bool hc_codes_plan(hc_codes *codes, const hc_convolution *conv, int form, bool by_groups, int64_t step);
int64_t hc_codes_bytes(const hc_codes *codes);
/* Memory, and what must be known of all images; the plan stays where it is until hc_codes_free, whether this fails or not. */
hc_status hc_codes_begin(hc_codes *codes, hc_error *error);
hc_status hc_codes_band(hc_codes *codes, int64_t band, hc_error *error);
void hc_codes_free(hc_codes *codes);

/* The place of tap (r, s) from a window's corner. */
static inline int64_t hc_code_tap(const hc_codes *codes, int64_t r, int64_t s) {
    const int64_t *dilation = codes->conv->window->dilation;
    return r * dilation[0] * codes->row_step + s * dilation[1] * codes->depth;
}
/* Corners of the windows of answers first .. first + n of the band in a group, and the scales of their images. */
void hc_code_windows(const hc_codes *codes, int64_t group, int64_t first, int n, const void **rows, float *scales);

/* `direct`, `depthwise` and F(m x m, 3 x 3) of integers, as algorithms.def has them. */
const char *hc_direct_codes_refuse(const hc_convolution *conv);
hc_conv_work hc_direct_codes_work(const hc_convolution *conv);
hc_status hc_direct_codes_run(const hc_convolution *conv, hc_error *error);
const char *hc_depthwise_codes_refuse(const hc_convolution *conv);
hc_conv_work hc_depthwise_codes_work(const hc_convolution *conv);
hc_status hc_depthwise_codes_run(const hc_convolution *conv, hc_error *error);
const char *hc_winograd_codes_refuse(const hc_convolution *conv, int m);
hc_conv_work hc_winograd_codes_work(const hc_convolution *conv, int m);
hc_status hc_winograd_codes_run(const hc_convolution *conv, int m, hc_error *error);
hc_filter_form hc_winograd_codes_form(const hc_convolution *conv, int m);
hc_status hc_winograd_codes_prepack(const hc_convolution *conv, int m, hc_prepacked_filters *to, hc_error *error);

#endif
