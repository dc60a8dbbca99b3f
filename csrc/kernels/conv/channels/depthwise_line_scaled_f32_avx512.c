/* Rows of outputs of filters of one channel with scales, 16 channels in lanes: hc_depthwise_line_scaled_f32_avx512;
 * kernels/conv/conv.h. */
#include "base/lanes/avx512.h"

#define HC_SCALED
#include "kernels/conv/channels/depthwise_line_f32.h"

HC_DEPTHWISE_LINE_SCALED(avx512)
