/* float16 and bfloat16 images that are rounded line by line: as float32 first, some images at a time, since lines of
 * float32 become codes in one pass, and others are packed. Memory: the values of WIDE_BYTES of images, at least one.
 */
#ifndef HC_CONV_WIDENED_H
#define HC_CONV_WIDENED_H

#include "ops/conv/convolution.h"

enum { HC_WIDE_BYTES = 4 << 20 };

/* True if x is widened; `wide` is its view as float32, without data. */
bool hc_widens(const hc_convolution *conv, hc_view *wide);
/* Widens images [first, first + n) of x to wide->data. */
void hc_widen(const hc_run *run, const hc_view *x, int64_t first, int64_t n, const hc_view *wide);

#endif
