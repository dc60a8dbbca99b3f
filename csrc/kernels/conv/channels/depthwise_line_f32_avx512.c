/* Rows of outputs of filters of one channel, 16 channels in lanes: hc_depthwise_line_f32_avx512; kernels/conv/conv.h. */
#include "base/lanes/avx512.h"

#include "kernels/conv/channels/depthwise_line_f32.h"

HC_DEPTHWISE_LINE(avx512)
