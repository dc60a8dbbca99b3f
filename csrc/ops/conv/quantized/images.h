/* x of a convolution with `activations`, quantized some images at a time. A row of codes is an image, (plane, h, w, channel): a
 * plane is a group of channels, or all channels where scales and sums do not depend on it: of exact sums without groups of
 * values and without a pattern.
 *
 * Codes that lines make: int8 with one scale an image is also rounded line by line under the largest magnitude of the image,
 * by the kernels largest_f32 and codes_s8; nothing is packed then.
 *
 * Memory: the codes of the images at hand.
 */
#ifndef HC_CONV_IMAGES_H
#define HC_CONV_IMAGES_H

#include "ops/codec/decode.h"
#include "ops/codec/encoder.h"
#include "ops/conv/convolution.h"

enum { HC_LINE_LARGEST = 127 }; /* the largest code that lines make: a scale is the largest magnitude over it */

struct hc_images {
    const hc_convolution *conv;
    hc_view view;          /* of x: (image, plane, channel, h, w) */
    int64_t planes, depth; /* a pixel of a plane has `depth` channels */
    bool by_lines;
    hc_encoder encoder;
    hc_components codes; /* there is room for so many images */
    int64_t room;
    hc_packed_context packed;
    hc_source source; /* the codes of the images at hand */
};

/* What is multiplied, by the formats alone. */
hc_conv_order hc_conv_order_of(const hc_convolution *conv);
/* Integers of 8 bits, one scale an image: whether lines make the codes of x. */
bool hc_lines_make_codes(const hc_convolution *conv);

/* What must be known of all images; the struct stays where it is until hc_images_free, whether this fails or not. */
hc_status hc_images_begin(hc_images *images, const hc_convolution *conv, hc_error *error);
/* Packs the codes of images [first, first + n): `source` reads them. */
hc_status hc_images_encode(hc_images *images, int64_t first, int64_t n, hc_error *error);
/* by_lines: the scale of each of these images; lines: their heights of memory for what a line has. */
hc_status hc_images_scales(hc_images *images, int64_t first, int64_t n, uint32_t *lines, float *scales,
                           hc_error *error);
void hc_images_free(hc_images *images);

#endif
