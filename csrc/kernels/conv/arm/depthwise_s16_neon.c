/* One filter per channel, of integers, 8 channels at a time: hc_depthwise_s16_neon; kernels/conv/conv.h. AT_ONCE
 * outputs share the loads of filters, of which two taps are interleaved. */
#include "kernels/kernel.h"

#include <arm_neon.h>

enum { AT_ONCE = 4, LANES = 8 };

__attribute__((always_inline)) static inline void answers(const int n, int64_t pairs, const int64_t *tap, int64_t step,
                                                          const int16_t *x, const int16_t *panel, int64_t ld,
                                                          int32_t *c, int64_t ldc) {
    int32x4_t low[AT_ONCE], high[AT_ONCE];
#pragma GCC unroll 4
    for (int i = 0; i < n; i++)
        low[i] = high[i] = vdupq_n_s32(0);
    for (int64_t p = 0; p < pairs; p++, tap += 2, panel += 2 * ld) {
        const int16x8x2_t w = vld2q_s16(panel);
#pragma GCC unroll 4
        for (int i = 0; i < n; i++) {
            const int16x8_t even = vld1q_s16(x + tap[0] + i * step), odd = vld1q_s16(x + tap[1] + i * step);
            low[i] = vmlal_s16(low[i], vget_low_s16(even), vget_low_s16(w.val[0]));
            high[i] = vmlal_high_s16(high[i], even, w.val[0]);
            low[i] = vmlal_s16(low[i], vget_low_s16(odd), vget_low_s16(w.val[1]));
            high[i] = vmlal_high_s16(high[i], odd, w.val[1]);
        }
    }
#pragma GCC unroll 4
    for (int i = 0; i < n; i++) {
        vst1q_s32(c + i * ldc, low[i]);
        vst1q_s32(c + i * ldc + 4, high[i]);
    }
}

#include "kernels/conv/depthwise_s16.h"

HC_DEPTHWISE_S16(neon)
