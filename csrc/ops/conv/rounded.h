/* Images rounded to `activations`, as floats that the algorithms of floats read: values, or codes of 8 bits beside one scale
 * an image.
 *
 *   order CHAIN     value = float32(scale * code), as it is decoded: one fmaf chain
 *   order GROUPED   code, and a filter's code and scale for each tap: acc = fmaf(float32(s_x * s_w), float32(q_x q_w), acc)
 *
 * int8 with one scale an image is rounded line by line under the largest magnitude of the image; other formats go through
 * their packed codes. Memory: IMAGE_BYTES of images, one image at least, and its codes.
 */
#ifndef HC_CONV_ROUNDED_H
#define HC_CONV_ROUNDED_H

#include "ops/codec/encoder.h"
#include "ops/conv/convolution.h"

typedef struct {
    const hc_convolution *conv;
    bool codes;         /* order GROUPED */
    bool by_lines;      /* else through packed codes */
    int64_t images;     /* at once */
    hc_view view;       /* (image, channel, h, w) of the images at hand, float32 */
    float *scale;       /* of each, where the view has codes */
    int64_t first;      /* of the images at hand */
    hc_view grouped;    /* of x: (image, group, channel, h, w) */
    hc_encoder encoder; /* of images */
    hc_components packed;
    float *values;
    int8_t *limbs;     /* of packed codes */
    uint32_t *largest; /* magnitudes of lines, as bits */
} hc_rounded;

/* Integers with scales for products: none of codebooks, floats, and where taps beyond the image would need minima. */
bool hc_has_integers(const hc_format *format);
/* NULL, or why images are not rounded like that, `folded` where sums are exact; whether codes are needed. */
const char *hc_rounded_refuses(const hc_convolution *conv, const char *folded, bool *codes);
int64_t hc_rounded_bytes(const hc_convolution *conv);
/* What must be known of all images; the struct stays where it is until hc_rounded_free, whether this fails or not. */
hc_status hc_rounded_begin(hc_rounded *rounded, const hc_convolution *conv, hc_error *error);
/* Makes images [first, first + n) those at hand. */
hc_status hc_rounded_images(hc_rounded *rounded, int64_t first, int64_t n, hc_error *error);
void hc_rounded_free(hc_rounded *rounded);
/* Codes and scales of all filters of one channel, tap by tap: of filter f at [t * filters + f]; false: no memory. */
bool hc_filter_codes(const hc_convolution *conv, float *codes, float *scales);

#endif
