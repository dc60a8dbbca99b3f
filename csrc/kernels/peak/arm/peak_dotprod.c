/* Limits of the machine: kernels/peak/peak.h. */
#include "kernels/kernel.h"

#include <arm_neon.h>

#define OPAQUE(x) __asm__ volatile("" : "+w"(x)) /* as HC_PEAK_OPAQUE */

/* peak_dot by sdot, 4 lanes of 4 bytes. */
int64_t hc_peak_dot_dotprod(int64_t steps, void *state) {
    int32_t *const chain = state;
    int8x16_t a_s8x16 = vreinterpretq_s8_s16(vdupq_n_s16(2 << 8 | 1));
    const int8x16_t b_s8x16 = vreinterpretq_s8_s16(vdupq_n_s16((int16_t)(-6 * 256 + 5)));
    int32x4_t x_i32x4[HC_PEAK_CHAINS];
#pragma GCC unroll 12
    for (int i = 0; i < HC_PEAK_CHAINS; i++)
        x_i32x4[i] = vld1q_s32(chain + 4 * i);
    for (int64_t step = 0; step < steps; step++) {
#pragma GCC unroll 12
        for (int i = 0; i < HC_PEAK_CHAINS; i++) {
            OPAQUE(a_s8x16);
            x_i32x4[i] = vdotq_s32(x_i32x4[i], a_s8x16, b_s8x16);
            OPAQUE(x_i32x4[i]);
        }
    }
#pragma GCC unroll 12
    for (int i = 0; i < HC_PEAK_CHAINS; i++)
        vst1q_s32(chain + 4 * i, x_i32x4[i]);
    return steps > 0 ? HC_PEAK_CHAINS * 4 * 8 : 0;
}
