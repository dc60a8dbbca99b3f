/* The tiled float32 matmul: 12 rows by 2 registers of columns are 24 accumulators, fed by lanes of 3 registers of a. */
#include "kernels/kernel.h"

#include <arm_neon.h>

enum { MR = 12, NR = 8 };

#define ROW(i, x, lane)                                                                                                \
    sum[i][0] = vfmaq_laneq_f32(sum[i][0], low, x, lane);                                                              \
    sum[i][1] = vfmaq_laneq_f32(sum[i][1], high, x, lane);
#define FOUR_ROWS(i, x) ROW(i, x, 0) ROW(i + 1, x, 1) ROW(i + 2, x, 2) ROW(i + 3, x, 3)

static inline __attribute__((always_inline)) void step(const float *a, const float *b, float32x4_t sum[MR][2]) {
    const float32x4_t low = vld1q_f32(b), high = vld1q_f32(b + 4);
    const float32x4_t x0 = vld1q_f32(a), x1 = vld1q_f32(a + 4), x2 = vld1q_f32(a + 8);
    FOUR_ROWS(0, x0) FOUR_ROWS(4, x1) FOUR_ROWS(8, x2)
}

void hc_gemm_f32_neon(int64_t k, const float *a, const float *b, float *c, int64_t ldc, bool accumulate, int rows,
                      int columns) {
    (void)rows, (void)columns;
    float32x4_t sum[MR][2];
#pragma GCC unroll 12
    for (int i = 0; i < MR; i++) {
        sum[i][0] = accumulate ? vld1q_f32(c + i * ldc) : vdupq_n_f32(0);
        sum[i][1] = accumulate ? vld1q_f32(c + i * ldc + 4) : vdupq_n_f32(0);
    }
#pragma GCC unroll 4
    for (; k > 0; k--, a += MR, b += NR)
        step(a, b, sum);
#pragma GCC unroll 12
    for (int i = 0; i < MR; i++) {
        vst1q_f32(c + i * ldc, sum[i][0]);
        vst1q_f32(c + i * ldc + 4, sum[i][1]);
    }
}
