/* One filter per channel, 4 channels in lanes: hc_depthwise_f32_neon and hc_depthwise_scaled_f32_neon;
 * kernels/conv/conv.h. */
#include "base/lanes/neon.h"

#include "kernels/conv/depthwise_f32.h"

HC_DEPTHWISE(neon)
HC_DEPTHWISE_SCALED(neon)
