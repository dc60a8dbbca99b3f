/* Rows of outputs of filters of one channel with scales, 8 channels in lanes: hc_depthwise_line_scaled_f32_avx2;
 * kernels/conv/conv.h. */
#include "base/lanes/avx2.h"

#define HC_SCALED
#include "kernels/conv/channels/depthwise_line_f32.h"

HC_DEPTHWISE_LINE_SCALED(avx2)
