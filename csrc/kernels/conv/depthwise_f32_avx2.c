/* One filter per channel, 8 channels in lanes: hc_depthwise_f32_avx2 and hc_depthwise_scaled_f32_avx2;
 * kernels/conv/conv.h. */
#include "base/lanes/avx2.h"

#include "kernels/conv/depthwise_f32.h"

HC_DEPTHWISE(avx2)
HC_DEPTHWISE_SCALED(avx2)
