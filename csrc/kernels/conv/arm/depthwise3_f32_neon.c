/* 3 x 3 filters of one channel, 4 channels in lanes, 4 x 4 outputs in registers: hc_depthwise3_f32_neon;
 * kernels/conv/conv.h. */
#include "base/lanes/neon.h"

enum { MR = 4, NR = 4 };

#include "kernels/conv/depthwise3_f32.h"

HC_DEPTHWISE3(neon, HC_CASES(1, 1) HC_CASES(1, 2) HC_CASES(1, 4) HC_CASES(2, 1) HC_CASES(2, 2) HC_CASES(2, 4))
