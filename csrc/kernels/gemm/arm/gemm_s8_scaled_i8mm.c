/* The int8 matmul with float32 group scales by smmla: one fma per segment on the float32 sums, which stay in memory
 * (L1). */
#include "kernels/gemm/arm/gemm_s8_i8mm.h"

void hc_gemm_s8_scaled_i8mm(int64_t n_segments, const int32_t *steps, const void *a, const int8_t *b,
                            const int32_t *init, const float *scale_a, const float *scale_b, float *c,
                            bool accumulate) {
    const int8_t *bytes = a;
    (void)init;
    for (int i = 0; i < MR * NR && !accumulate; i += 4)
        vst1q_f32(c + i, vdupq_n_f32(0));
    for (int64_t s = 0; s < n_segments; s++, scale_a += MR, scale_b += NR) {
        int32x4_t sum[ROWS][COLUMNS];
#pragma GCC unroll 6
        for (int i = 0; i < ROWS; i++)
#pragma GCC unroll 4
            for (int j = 0; j < COLUMNS; j++)
                sum[i][j] = vdupq_n_s32(0);
        add_steps(steps[s], bytes, b, sum);
        bytes += (int64_t)steps[s] * MR * KR;
        b += (int64_t)steps[s] * NR * KR;
        const float32x4_t low = vld1q_f32(scale_b), high = vld1q_f32(scale_b + 4);
#pragma GCC unroll 12
        for (int i = 0; i < MR; i++) {
            float *to = c + i * NR;
            const float32x4_t first = vcvtq_f32_s32(row_of(sum[i / 2], i % 2));
            const float32x4_t second = vcvtq_f32_s32(row_of(sum[i / 2] + 2, i % 2));
            vst1q_f32(to, vfmaq_f32(vld1q_f32(to), vmulq_n_f32(low, scale_a[i]), first));
            vst1q_f32(to + 4, vfmaq_f32(vld1q_f32(to + 4), vmulq_n_f32(high, scale_a[i]), second));
        }
    }
}
