/* hc_gemv_dots_neon, hc_gemv_folded_neon, hc_gemv_scaled_neon, hc_gemv_scaled_zeros_neon and hc_gemv_turned_neon: the
 * included files describe them.
 */
#include "kernels/gemv/arm/gemv_arm.h"

INLINE int32x4_t add_words(int32x4_t sum, int16x8_t low, int16x8_t high) {
    return vaddq_s32(sum, vpaddq_s32(vpaddlq_s16(low), vpaddlq_s16(high)));
}

INLINE int32x4_t dot(int32x4_t sum, int8x16_t a, int8x16_t b) {
    return add_words(sum, vmull_s8(vget_low_s8(a), vget_low_s8(b)), vmull_high_s8(a, b));
}

#include "kernels/gemv/arm/gemv_integers_arm.h"

/* int16 holds 8 products of nibbles or of a table's entries, which are at most 30, and 4 of bytes below 64. */
INLINE int32x4_t four_words(int32x4_t sum, int8x16_t turned[4][2], code_kind kind, const int8_t *x) {
    const int n_parts = kind <= TABLED ? 2 : 1;
    int16x8_t low = vdupq_n_s16(0), high = low;
#pragma GCC unroll 2
    for (int part = 0; part < n_parts; part++)
#pragma GCC unroll 4
        for (int word = 0; word < 4; word++) {
            int32_t four;
            memcpy(&four, x + part * BLOCK + 4 * word, sizeof four);
            const int8x16_t each = vreinterpretq_s8_s32(vdupq_n_s32(four)), codes = turned[word][part];
            if (kind == BYTES) {
                sum = dot(sum, codes, each);
                continue;
            }
            low = vmlal_s8(low, vget_low_s8(codes), vget_low_s8(each));
            high = vmlal_high_s8(high, codes, each);
        }
    return kind == BYTES ? sum : add_words(sum, low, high);
}

#include "kernels/gemv/arm/gemv_scaled_arm.h"

HC_GEMV_DOTS(neon)
HC_GEMV_FOLDED(neon)
HC_GEMV_SCALED(neon)
