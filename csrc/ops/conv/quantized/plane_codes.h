/* Planes of NCHW images by one filter each, with `activations`: what `planes` does for filters of one channel. */
#ifndef HC_CONV_PLANE_CODES_H
#define HC_CONV_PLANE_CODES_H

#include "ops/conv/convolution.h"

const char *hc_conv_plane_codes_refuses(const hc_convolution *conv);
hc_conv_work hc_conv_plane_codes_work(const hc_convolution *conv);
hc_status hc_conv_plane_codes_run(const hc_convolution *conv, hc_error *error);

#endif
