/* The final scaling of a folded matmul, 4 columns at a time in float64. Scales of columns are widened once for all
 * rows. */
#include "kernels/kernel.h"

#include <arm_neon.h>

void hc_dequantize_s32_neon(int64_t rows, int64_t columns, const int32_t *c, int64_t ldc, const float *scale_a,
                            const float *scale_b, float *out, int64_t ldo) {
    int64_t j = 0;
    for (; j + 4 <= columns; j += 4) {
        const float32x4_t four = vld1q_f32(scale_b + j);
        const float64x2_t low = vcvt_f64_f32(vget_low_f32(four)), high = vcvt_high_f64_f32(four);
        for (int64_t i = 0; i < rows; i++) {
            const int32x4_t sums = vld1q_s32(c + i * ldc + j);
            const double scale = (double)scale_a[i];
            const float64x2_t first = vcvtq_f64_s64(vmovl_s32(vget_low_s32(sums)));
            const float64x2_t last = vcvtq_f64_s64(vmovl_high_s32(sums));
            const float32x2_t two = vcvt_f32_f64(vmulq_f64(vmulq_n_f64(low, scale), first));
            vst1q_f32(out + i * ldo + j, vcvt_high_f32_f64(two, vmulq_f64(vmulq_n_f64(high, scale), last)));
        }
    }
    for (; j < columns; j++)
        for (int64_t i = 0; i < rows; i++)
            out[i * ldo + j] = (float)((double)scale_a[i] * (double)scale_b[j] * (double)c[i * ldc + j]);
}
