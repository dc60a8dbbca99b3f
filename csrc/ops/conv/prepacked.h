/* Filters of floats as the panels of one kernel, packed once for many convolutions: those of `direct`, or transformed for
 * Winograd's F(m x m, 3 x 3). Used where they fit, else filters are packed as ever; bits are the same. */
#ifndef HC_PREPACKED_FILTERS_H
#define HC_PREPACKED_FILTERS_H

#include "ops/conv/filters.h"

/* Panel 0 of a group, the others behind it; NULL where these are not the panels of that kernel. m 0: of `direct`. */
const float *hc_prepacked_filter_panels(const hc_convolution *conv, const hc_kernel *kernel, int m, int64_t group);

#endif
