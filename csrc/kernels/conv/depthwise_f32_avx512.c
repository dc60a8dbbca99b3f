/* One filter per channel, 16 channels in lanes: hc_depthwise_f32_avx512 and hc_depthwise_scaled_f32_avx512;
 * kernels/conv/conv.h. */
#include "base/lanes/avx512.h"

#include "kernels/conv/depthwise_f32.h"

HC_DEPTHWISE(avx512)
HC_DEPTHWISE_SCALED(avx512)
