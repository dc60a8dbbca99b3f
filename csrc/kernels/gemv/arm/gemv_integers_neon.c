/* hc_gemv_dots_neon, hc_gemv_folded_neon and hc_gemv_scaled_neon: the included file describes them. */
#include "kernels/gemv/arm/gemv_arm.h"

INLINE int32x4_t dot(int32x4_t sum, int8x16_t a, int8x16_t b) {
    const int16x8_t low = vmull_s8(vget_low_s8(a), vget_low_s8(b)), high = vmull_high_s8(a, b);
    return vaddq_s32(sum, vpaddq_s32(vpaddlq_s16(low), vpaddlq_s16(high)));
}

#include "kernels/gemv/arm/gemv_integers_arm.h"

HC_GEMV_DOTS(neon)
HC_GEMV_FOLDED(neon)
HC_GEMV_SCALED(neon)
