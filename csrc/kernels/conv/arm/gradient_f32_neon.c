/* Gradients of filters, 4 filters in lanes: hc_gradient_f32_neon; kernels/conv/conv.h. */
#include "base/lanes/neon.h"

enum { AT_ONCE = 3, HALF_AT_ONCE = 5 };

#include "kernels/conv/channels/gradient_f32.h"

HC_ONE_TAPS(1)
HC_ONE_TAPS(2)
HC_ONE_TAPS(3)
HC_HALF_TAPS(1)
HC_HALF_TAPS(2)
HC_HALF_TAPS(3)
HC_HALF_TAPS(4)
HC_HALF_TAPS(5)
static taps_fn *const HALVES[] = {NULL, half_1, half_2, half_3, half_4, half_5};
HC_GRADIENT(neon, HALVES, one_1, one_2, one_3)
