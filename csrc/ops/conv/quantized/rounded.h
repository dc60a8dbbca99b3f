/* Images rounded to `activations`, as floats for the float algorithms: values, or 8-bit codes with one scale per image.
 *
 *   order ROUNDED   value = float32(scale * code), as it is decoded: one fmaf chain
 *   order GROUPED   code, and a filter's code and scale for each tap: acc = fmaf(float32(s_x * s_w), float32(q_x q_w), acc)
 *
 * They are made line by line if the format allows it (images.h), otherwise from packed codes. Memory: HC_IMAGE_BYTES of
 * images, at least one image, and its codes.
 */
#ifndef HC_CONV_ROUNDED_H
#define HC_CONV_ROUNDED_H

#include "ops/conv/quantized/images.h"

enum { HC_IMAGE_BYTES = 8 << 20 };

typedef struct {
    const hc_convolution *conv;
    int64_t images;     /* at once */
    hc_view view;       /* (image, channel, h, w) of the current images, float32; of one group, if there are several */
    int64_t group_step; /* bytes from a group of channels to the next */
    float *scale;       /* of each image, if the view has codes */
    int64_t first;      /* of the images at hand */
    float *values;
    int8_t *limbs;     /* of packed codes */
    uint32_t *largest; /* magnitudes of lines, as bits */
} hc_rounded;

/* The number of images that are rounded at once. */
int64_t hc_rounded_images_at_once(const hc_convolution *conv);
int64_t hc_rounded_bytes(const hc_convolution *conv);
/* The struct must not be moved until hc_rounded_free, even if this fails. */
hc_status hc_rounded_begin(hc_rounded *rounded, const hc_convolution *conv, hc_error *error);
/* Makes images [first, first + n) the current ones. */
hc_status hc_rounded_images(hc_rounded *rounded, int64_t first, int64_t n, hc_error *error);
/* The convolution of images [first, first + n) of the current ones as floats; x and out: memory for its views. */
hc_convolution hc_rounded_part(const hc_rounded *rounded, int64_t first, int64_t n, hc_view *x, hc_view *out);
void hc_rounded_free(hc_rounded *rounded);
/* Codes and scales of all filters of one channel, tap by tap: those of filter f at [t * filters + f]; false: out of
 * memory. */
bool hc_filter_codes(const hc_convolution *conv, float *codes, float *scales);

#endif
