/* x of a convolution with `activations`, quantized some images at a time. A row of codes is an image, (plane, h, w,
 * channel). A plane is a group of channels. It is all channels if scales and sums do not depend on groups of channels:
 * for exact sums without groups of values and without a pattern. int8 with one scale per image can also be rounded line
 * by line with the largest magnitude of the image, by the kernels largest_f32 and codes_s8. Nothing is packed then.
 * Memory: the codes of the current images.
 */
#ifndef HC_CONV_IMAGES_H
#define HC_CONV_IMAGES_H

#include "ops/codec/decode.h"
#include "ops/codec/encoder.h"
#include "ops/conv/convolution.h"

/* the largest code of images rounded by lines: a scale is the largest magnitude divided by it */
enum { HC_LINE_LARGEST = 127 };

struct hc_images {
    const hc_convolution *conv;
    hc_view view;          /* of x: (image, plane, channel, h, w) */
    int64_t planes, depth; /* a pixel of a plane has `depth` channels */
    bool by_lines;
    hc_encoder encoder;
    hc_components codes; /* memory for this many images */
    int64_t room;
    hc_packed_context packed;
    hc_source source; /* the codes of the current images */
};

/* The order, from the formats alone. */
hc_conv_order hc_conv_order_of(const hc_convolution *conv);
/* 8-bit integers with one scale per image: whether codes of x are made line by line. */
bool hc_lines_make_codes(const hc_convolution *conv);

/* True if an image is one window of all channels, so that its codes are a row of a matmul, which is not small. */
bool hc_one_window(const hc_convolution *conv);

/* Computes what depends on all images. The struct must not be moved until hc_images_free, even if this fails. */
hc_status hc_images_begin(hc_images *images, const hc_convolution *conv, hc_error *error);
/* Packs the codes of images [first, first + n), which `source` then reads. */
hc_status hc_images_encode(hc_images *images, int64_t first, int64_t n, hc_error *error);
/* by_lines: computes the scale of each of these images; lines: the heights of the lines in memory. */
hc_status hc_images_scales(hc_images *images, int64_t first, int64_t n, uint32_t *lines, float *scales,
                           hc_error *error);
void hc_images_free(hc_images *images);

#endif
