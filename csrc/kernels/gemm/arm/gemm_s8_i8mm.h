/* Steps of the int8 matmul by smmla, 8 values per step: 6 pairs of rows by 4 pairs of columns. An accumulator holds
 * 2 x 2 sums. The panel of b has the two halves of a step one after the other; zipping their words gives columns.
 */
#ifndef HC_GEMM_S8_I8MM_H
#define HC_GEMM_S8_I8MM_H

#include "kernels/kernel.h"

#include <arm_neon.h>

enum { MR = 12, NR = 8, KR = 8, ROWS = MR / 2, COLUMNS = NR / 2 };

/* gcc 12 would load all of a first, run out of registers and spill sums. This makes each load wait for the rows before
 * it. */
#define LATER() __asm__ volatile("" ::: "memory")

static inline __attribute__((always_inline)) void step(const int8_t *a, const int8_t *b, int32x4_t sum[ROWS][COLUMNS]) {
    int8x16_t pair[COLUMNS];
    LATER();
#pragma GCC unroll 2
    for (int j = 0; j < COLUMNS; j += 2) {
        const int32x4_t first = vreinterpretq_s32_s8(vld1q_s8(b + j * 8));
        LATER();
        const int32x4_t second = vreinterpretq_s32_s8(vld1q_s8(b + j * 8 + NR * 4));
        pair[j] = vreinterpretq_s8_s32(vzip1q_s32(first, second));
        pair[j + 1] = vreinterpretq_s8_s32(vzip2q_s32(first, second));
    }
#pragma GCC unroll 6
    for (int i = 0; i < ROWS; i++) {
        LATER();
        const int8x16_t x = vld1q_s8(a + i * 16);
#pragma GCC unroll 4
        for (int j = 0; j < COLUMNS; j++)
            sum[i][j] = vmmlaq_s32(sum[i][j], x, pair[j]);
    }
}

/* Adds n_steps steps of KR values. */
static inline __attribute__((always_inline)) void add_steps(int64_t n_steps, const int8_t *a, const int8_t *b,
                                                            int32x4_t sum[ROWS][COLUMNS]) {
#pragma GCC unroll 4
    for (; n_steps > 0; n_steps--, a += MR * KR, b += NR * KR)
        step(a, b, sum);
}

/* 4 columns of two rows of the tile, from two accumulators. */
static inline int32x4_t row_of(const int32x4_t pair[2], int second) {
    const int64x2_t low = vreinterpretq_s64_s32(pair[0]), high = vreinterpretq_s64_s32(pair[1]);
    return vreinterpretq_s32_s64(second ? vzip2q_s64(low, high) : vzip1q_s64(low, high));
}

#endif
