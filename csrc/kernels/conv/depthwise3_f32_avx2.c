/* 3 x 3 filters of one channel, 8 channels in lanes, 2 x 4 outputs in registers: hc_depthwise3_f32_avx2;
 * kernels/conv/conv.h. */
#include "base/lanes/avx2.h"

enum { MR = 2, NR = 4 };

#include "kernels/conv/depthwise3_f32.h"

HC_DEPTHWISE3(avx2, HC_CASES(1, 1) HC_CASES(1, 2) HC_CASES(2, 1) HC_CASES(2, 2))
