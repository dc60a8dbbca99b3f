/* Rows of outputs of filters of one channel with scales, 4 channels in lanes: hc_depthwise_line_scaled_f32_neon;
 * kernels/conv/conv.h. */
#include "base/lanes/neon.h"

#define HC_SCALED
#include "kernels/conv/channels/depthwise_line_f32.h"

HC_DEPTHWISE_LINE_SCALED(neon)
