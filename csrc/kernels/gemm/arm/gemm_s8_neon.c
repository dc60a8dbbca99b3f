/* The int8 matmul without sdot. */
#include "kernels/gemm/arm/gemm_s8_neon.h"

void hc_gemm_s8_neon(int64_t n_steps, const void *a, const int8_t *b, const int32_t *init, int32_t *c) {
    const int32x4_t low = vld1q_s32(init), high = vld1q_s32(init + 4);
    int32x4_t sum[MR][PAIRS];
#pragma GCC unroll 4
    for (int i = 0; i < MR; i++)
#pragma GCC unroll 4
        for (int j = 0; j < PAIRS; j++)
            sum[i][j] = vdupq_n_s32(0);
    add_steps(n_steps, a, b, sum);
#pragma GCC unroll 4
    for (int i = 0; i < MR; i++) {
        vst1q_s32(c + i * NR, vaddq_s32(low, vpaddq_s32(sum[i][0], sum[i][1])));
        vst1q_s32(c + i * NR + 4, vaddq_s32(high, vpaddq_s32(sum[i][2], sum[i][3])));
    }
}
