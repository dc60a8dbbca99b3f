/* gemv_sum: products of 32-bit lanes in 64 bits. */
#include "kernels/kernel.h"

#include <arm_neon.h>

int64_t hc_gemv_sum_neon(int64_t n, const float *integers, const int32_t *dots, const int32_t *corrections) {
    int64x2_t low = vdupq_n_s64(0), high = low;
    int64_t i = 0, rest = 0;
    for (; i + 4 <= n; i += 4) {
        const int32x4_t dot = vsubq_s32(vld1q_s32(dots + i), vld1q_s32(corrections + i));
        const int32x4_t factor = vcvtq_s32_f32(vld1q_f32(integers + i));
        low = vmlal_s32(low, vget_low_s32(dot), vget_low_s32(factor));
        high = vmlal_high_s32(high, dot, factor);
    }
    for (; i < n; i++)
        rest += (int64_t)(int32_t)integers[i] * (int32_t)((uint32_t)dots[i] - (uint32_t)corrections[i]);
    return rest + vaddvq_s64(vaddq_s64(low, high));
}
