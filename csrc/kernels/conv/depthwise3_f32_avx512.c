/* 3 x 3 filters of one channel, 16 channels in lanes, 4 x 4 outputs and 9 filters in registers:
 * hc_depthwise3_f32_avx512; kernels/conv/conv.h. */
#include "base/lanes/avx512.h"

enum { MR = 4, NR = 4 };

#include "kernels/conv/depthwise3_f32.h"

HC_DEPTHWISE3(avx512, HC_CASES(1, 1) HC_CASES(1, 2) HC_CASES(1, 4) HC_CASES(2, 1) HC_CASES(2, 2) HC_CASES(2, 4))
