/* Joins the sums of pairs of 8-bit limbs, 4 at a time. */
#include "kernels/kernel.h"

#include <arm_neon.h>

void hc_combine_limbs_neon(int n, int64_t count, const int32_t *tiles, const int *shifts, int64_t *dots) {
    for (int64_t t = 0; t < count; t += 4) {
        int64x2_t low = vld1q_s64(dots + t), high = vld1q_s64(dots + t + 2);
        for (int p = 0; p < n; p++) {
            const int32x4_t sums = vld1q_s32(tiles + p * count + t);
            const int64x2_t shift = vdupq_n_s64(shifts[p]);
            low = vaddq_s64(low, vshlq_s64(vmovl_s32(vget_low_s32(sums)), shift));
            high = vaddq_s64(high, vshlq_s64(vmovl_high_s32(sums), shift));
        }
        vst1q_s64(dots + t, low);
        vst1q_s64(dots + t + 2, high);
    }
}
