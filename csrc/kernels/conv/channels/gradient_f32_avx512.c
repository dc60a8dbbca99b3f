/* Gradients of filters, 16 filters in lanes: hc_gradient_f32_avx512; kernels/conv/conv.h. */
#include "base/lanes/avx512.h"

enum { AT_ONCE = 9 };

#include "kernels/conv/channels/gradient_f32.h"

HC_ONE_TAPS(1)
HC_ONE_TAPS(2)
HC_ONE_TAPS(3)
HC_ONE_TAPS(4)
HC_ONE_TAPS(5)
HC_ONE_TAPS(6)
HC_ONE_TAPS(7)
HC_ONE_TAPS(8)
HC_ONE_TAPS(9)
HC_GRADIENT(avx512, one_1, one_2, one_3, one_4, one_5, one_6, one_7, one_8, one_9)
