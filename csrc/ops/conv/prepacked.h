/* Filters as the panels of one kernel, packed once for many convolutions: those of `direct`, or transformed filters of
 * Winograd's algorithms or the Fourier transform. They are used if they match, otherwise filters are packed in the
 * call. The results are bitwise identical. */
#ifndef HC_PREPACKED_FILTERS_H
#define HC_PREPACKED_FILTERS_H

#include "ops/conv/convolution.h"

/* Address of panel 0 of a group, followed by the others; NULL if the prepacked filters have another form. */
const float *hc_prepacked_panels_of(const hc_convolution *conv, const hc_filter_form *form, int64_t group);
/* Scales of filters, for integers only. */
const float *hc_prepacked_filter_scales(const hc_convolution *conv);

/* Allocates prepacked filters; the algorithm fills the panels and scales. */
hc_status hc_prepacked_filters_new(const hc_convolution *conv, const hc_filter_form *form,
                                   hc_prepacked_filters **prepacked, hc_error *error);
float *hc_prepacked_panels_to(hc_prepacked_filters *prepacked);
float *hc_prepacked_scales_to(hc_prepacked_filters *prepacked);

#endif
