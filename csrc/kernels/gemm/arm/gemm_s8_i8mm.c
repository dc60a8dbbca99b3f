/* The int8 matmul by smmla. */
#include "kernels/gemm/arm/gemm_s8_i8mm.h"

void hc_gemm_s8_i8mm(int64_t n_steps, const void *a, const int8_t *b, const int32_t *init, int32_t *c) {
    int32x4_t sum[ROWS][COLUMNS];
#pragma GCC unroll 6
    for (int i = 0; i < ROWS; i++)
#pragma GCC unroll 4
        for (int j = 0; j < COLUMNS; j++)
            sum[i][j] = vcombine_s32(vld1_s32(init + 2 * j), vld1_s32(init + 2 * j));
    add_steps(n_steps, a, b, sum);
#pragma GCC unroll 12
    for (int i = 0; i < MR; i++) {
        vst1q_s32(c + i * NR, row_of(sum[i / 2], i % 2));
        vst1q_s32(c + i * NR + 4, row_of(sum[i / 2] + 2, i % 2));
    }
}
