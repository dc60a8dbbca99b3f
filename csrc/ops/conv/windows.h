/* Windows and answers as the two matrices of a convolution that is a product. Row: ((image * P) + p) * Q + q. */
#ifndef HC_WINDOWS_H
#define HC_WINDOWS_H

#include "ops/conv/convolution.h"

/* Windows [first, first + rows) of one group, columns r, s, c, one after the other. */
void hc_window_rows(const hc_convolution *conv, int64_t group, int64_t first, int64_t rows, float *values);
/* out (images, filters of one group, P, Q), columns filters. */
hc_rows hc_answer_rows(const hc_view *out, const hc_conv_shape *shape, int64_t first_image, int64_t images,
                       int64_t first_filter);

#endif
