/* hc_gemv_dots_dotprod, hc_gemv_folded_dotprod, hc_gemv_scaled_dotprod, hc_gemv_scaled_zeros_dotprod and
 * hc_gemv_turned_dotprod: the included files describe them.
 */
#include "kernels/gemv/arm/gemv_arm.h"

INLINE int32x4_t dot(int32x4_t sum, int8x16_t a, int8x16_t b) { return vdotq_s32(sum, a, b); }

#include "kernels/gemv/arm/gemv_integers_arm.h"

INLINE int32x4_t four_words(int32x4_t sum, int8x16_t turned[4][2], code_kind kind, const int8_t *x) {
    const int n_parts = kind <= TABLED ? 2 : 1;
#pragma GCC unroll 2
    for (int part = 0; part < n_parts; part++) {
        const int8x16_t four = vld1q_s8(x + part * BLOCK);
        sum = vdotq_laneq_s32(sum, turned[0][part], four, 0);
        sum = vdotq_laneq_s32(sum, turned[1][part], four, 1);
        sum = vdotq_laneq_s32(sum, turned[2][part], four, 2);
        sum = vdotq_laneq_s32(sum, turned[3][part], four, 3);
    }
    return sum;
}

#include "kernels/gemv/arm/gemv_scaled_arm.h"

HC_GEMV_DOTS(dotprod)
HC_GEMV_FOLDED(dotprod)
HC_GEMV_SCALED(dotprod)
