/* Filters as the panels of one kernel, packed once for many convolutions: those of `direct`, or transformed for Winograd's
 * algorithms or that of the Fourier transform. Used where they fit, else filters are packed as ever; bits are the same. */
#ifndef HC_PREPACKED_FILTERS_H
#define HC_PREPACKED_FILTERS_H

#include "ops/conv/convolution.h"

/* Where panel 0 of a group is, the others behind it; NULL where what was packed before has another form. */
const float *hc_prepacked_panels_of(const hc_convolution *conv, const hc_filter_form *form, int64_t group);
/* Integers have scales of filters too. */
const float *hc_prepacked_filter_scales(const hc_convolution *conv);

/* What an algorithm fills. */
hc_status hc_prepacked_filters_new(const hc_convolution *conv, const hc_filter_form *form,
                                   hc_prepacked_filters **prepacked, hc_error *error);
float *hc_prepacked_panels_to(hc_prepacked_filters *prepacked);
float *hc_prepacked_scales_to(hc_prepacked_filters *prepacked);

#endif
