/* hc_gemv_dots_dotprod, hc_gemv_folded_dotprod and hc_gemv_scaled_dotprod: the included file describes them. */
#include "kernels/gemv/arm/gemv_arm.h"

INLINE int32x4_t dot(int32x4_t sum, int8x16_t a, int8x16_t b) { return vdotq_s32(sum, a, b); }

#include "kernels/gemv/arm/gemv_integers_arm.h"

HC_GEMV_DOTS(dotprod)
HC_GEMV_FOLDED(dotprod)
HC_GEMV_SCALED(dotprod)
