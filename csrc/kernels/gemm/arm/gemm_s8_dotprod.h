/* Steps of the int8 matmul by sdot: 12 rows by 2 registers of columns, fed by lanes of 3 registers of a. */
#ifndef HC_GEMM_S8_DOTPROD_H
#define HC_GEMM_S8_DOTPROD_H

#include "kernels/kernel.h"

#include <arm_neon.h>

enum { MR = 12, NR = 8, KR = 4 };

#define ROW(i, x, lane)                                                                                                \
    sum[i][0] = vdotq_laneq_s32(sum[i][0], low, x, lane);                                                              \
    sum[i][1] = vdotq_laneq_s32(sum[i][1], high, x, lane);
#define FOUR_ROWS(i, x) ROW(i, x, 0) ROW(i + 1, x, 1) ROW(i + 2, x, 2) ROW(i + 3, x, 3)

static inline __attribute__((always_inline)) void step(const int8_t *a, const int8_t *b, int32x4_t sum[MR][2]) {
    const int8x16_t low = vld1q_s8(b), high = vld1q_s8(b + 16);
    const int8x16_t x0 = vld1q_s8(a), x1 = vld1q_s8(a + 16), x2 = vld1q_s8(a + 32);
    FOUR_ROWS(0, x0) FOUR_ROWS(4, x1) FOUR_ROWS(8, x2)
}

/* Adds n_steps steps of KR values. */
static inline __attribute__((always_inline)) void add_steps(int64_t n_steps, const int8_t *a, const int8_t *b,
                                                            int32x4_t sum[MR][2]) {
#pragma GCC unroll 4
    for (; n_steps > 0; n_steps--, a += MR * KR, b += NR * KR)
        step(a, b, sum);
}

#endif
