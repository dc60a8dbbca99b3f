/* Gradients of filters, 4 filters in lanes: hc_gradient_f32_neon; kernels/conv/conv.h. */
#include "base/lanes/neon.h"

enum { AT_ONCE = 3 };

#include "kernels/conv/channels/gradient_f32.h"

HC_ONE_TAPS(1)
HC_ONE_TAPS(2)
HC_ONE_TAPS(3)
HC_GRADIENT(neon, one_1, one_2, one_3)
