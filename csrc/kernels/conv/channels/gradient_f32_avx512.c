/* Gradients of filters, 16 filters in lanes: hc_gradient_f32_avx512; kernels/conv/conv.h. */
#include "base/lanes/avx512.h"

enum { AT_ONCE = 9, HALF_AT_ONCE = 9 };

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
HC_HALF_TAPS(1)
HC_HALF_TAPS(2)
HC_HALF_TAPS(3)
HC_HALF_TAPS(4)
HC_HALF_TAPS(5)
HC_HALF_TAPS(6)
HC_HALF_TAPS(7)
HC_HALF_TAPS(8)
HC_HALF_TAPS(9)
static taps_fn *const HALVES[] = {NULL, half_1, half_2, half_3, half_4, half_5, half_6, half_7, half_8, half_9};
HC_GRADIENT(avx512, HALVES, one_1, one_2, one_3, one_4, one_5, one_6, one_7, one_8, one_9)
