/* The int8 matmul by sdot. */
#include "kernels/gemm/arm/gemm_s8_dotprod.h"

void hc_gemm_s8_dotprod(int64_t n_steps, const void *a, const int8_t *b, const int32_t *init, int32_t *c) {
    const int32x4_t low = vld1q_s32(init), high = vld1q_s32(init + 4);
    int32x4_t sum[MR][2];
#pragma GCC unroll 12
    for (int i = 0; i < MR; i++) /* with sums initialized from init, gcc 12 copies them in the loop */
        sum[i][0] = sum[i][1] = vdupq_n_s32(0);
    add_steps(n_steps, a, b, sum);
#pragma GCC unroll 12
    for (int i = 0; i < MR; i++) {
        vst1q_s32(c + i * NR, vaddq_s32(low, sum[i][0]));
        vst1q_s32(c + i * NR + 4, vaddq_s32(high, sum[i][1]));
    }
}
