/* Limits of the machine: kernels/peak/peak.h. */
#include "kernels/kernel.h"

#include <arm_neon.h>

#define OPAQUE(x) __asm__ volatile("" : "+w"(x)) /* as HC_PEAK_OPAQUE */

/* peak_fma on 4 lanes. */
int64_t hc_peak_fma_neon(int64_t steps, void *state) {
    float *const chain = state;
    const float32x4_t half = vdupq_n_f32(-0.5f);
    float32x4_t one = vdupq_n_f32(1.0f), x_f32x4[HC_PEAK_CHAINS];
#pragma GCC unroll 12
    for (int i = 0; i < HC_PEAK_CHAINS; i++)
        x_f32x4[i] = vld1q_f32(chain + 4 * i);
    for (int64_t step = 0; step < steps; step++) {
#pragma GCC unroll 12
        for (int i = 0; i < HC_PEAK_CHAINS; i++)
            x_f32x4[i] = vfmaq_f32(one, x_f32x4[i], half);
    }
#pragma GCC unroll 12
    for (int i = 0; i < HC_PEAK_CHAINS; i++)
        vst1q_f32(chain + 4 * i, x_f32x4[i]);
    return steps > 0 ? HC_PEAK_CHAINS * 4 * 2 : 0;
}

/* peak_shuffle, 16 bytes per instruction. */
int64_t hc_peak_shuffle_neon(int64_t steps, void *state) {
    static const uint8_t INDEX[16] = {3, 10, 1, 8, 15, 6, 13, 4, 11, 2, 9, 0, 7, 14, 5, 12};
    uint8_t *const chain = state;
    const uint8x16_t index_u8x16 = vld1q_u8(INDEX);
    uint8x16_t x_u8x16[HC_PEAK_CHAINS];
#pragma GCC unroll 12
    for (int i = 0; i < HC_PEAK_CHAINS; i++)
        x_u8x16[i] = vld1q_u8(chain + 16 * i);
    for (int64_t step = 0; step < steps; step++) {
#pragma GCC unroll 12
        for (int i = 0; i < HC_PEAK_CHAINS; i++) {
            x_u8x16[i] = vqtbl1q_u8(x_u8x16[i], index_u8x16);
            OPAQUE(x_u8x16[i]);
        }
    }
#pragma GCC unroll 12
    for (int i = 0; i < HC_PEAK_CHAINS; i++)
        vst1q_u8(chain + 16 * i, x_u8x16[i]);
    return steps > 0 ? HC_PEAK_CHAINS : 0;
}

/* peak_read, 128 bytes per iteration. */
uint64_t hc_peak_read_neon(const void *bytes, int64_t size, int64_t ahead) {
    const uint64_t *word = bytes, *const end = word + size / 8;
    uint64x2_t sum_u64x2[8] = {{0}};
    for (; word + 16 <= end; word += 16) {
        if (ahead) {
            __builtin_prefetch((const char *)word + ahead);
            __builtin_prefetch((const char *)word + ahead + 64);
        }
#pragma GCC unroll 8
        for (int i = 0; i < 8; i++)
            sum_u64x2[i] = vaddq_u64(sum_u64x2[i], vld1q_u64(word + 2 * i));
    }
    for (; word < end; word += 2)
        sum_u64x2[0] = vaddq_u64(sum_u64x2[0], vld1q_u64(word));
    for (int i = 1; i < 8; i++)
        sum_u64x2[0] = vaddq_u64(sum_u64x2[0], sum_u64x2[i]);
    return vaddvq_u64(sum_u64x2[0]);
}
