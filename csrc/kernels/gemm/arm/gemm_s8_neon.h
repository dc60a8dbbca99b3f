/* Steps of the int8 matmul without sdot: products of 8 bits are exact in 16, neighbours are added in 32. 4 rows by 4
 * pairs of columns. An accumulator holds two parts of the sums of each column of a pair.
 */
#ifndef HC_GEMM_S8_NEON_H
#define HC_GEMM_S8_NEON_H

#include "kernels/kernel.h"

#include <arm_neon.h>
#include <string.h>

enum { MR = 4, NR = 8, KR = 4, PAIRS = NR / 2 };

/* Adds n_steps steps of KR values. */
static inline __attribute__((always_inline)) void add_steps(int64_t n_steps, const int8_t *a, const int8_t *b,
                                                            int32x4_t sum[MR][PAIRS]) {
    for (; n_steps > 0; n_steps--, a += MR * KR, b += NR * KR) {
        const int8x16_t low = vld1q_s8(b), high = vld1q_s8(b + 16);
#pragma GCC unroll 4
        for (int i = 0; i < MR; i++) {
            int32_t word;
            memcpy(&word, a + i * KR, sizeof word);
            const int8x16_t x = vreinterpretq_s8_s32(vdupq_n_s32(word));
            sum[i][0] = vpadalq_s16(sum[i][0], vmull_s8(vget_low_s8(x), vget_low_s8(low)));
            sum[i][1] = vpadalq_s16(sum[i][1], vmull_high_s8(x, low));
            sum[i][2] = vpadalq_s16(sum[i][2], vmull_s8(vget_low_s8(x), vget_low_s8(high)));
            sum[i][3] = vpadalq_s16(sum[i][3], vmull_high_s8(x, high));
        }
    }
}

#endif
