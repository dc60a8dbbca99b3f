/* One segment of a grouped matmul with 64-bit sums, 4 values at a time. NEON cannot round 64-bit integers to float32;
 * the scalar instruction can, with one rounding. */
#include "kernels/kernel.h"

#include <arm_neon.h>

void hc_scale_s64_neon(int64_t rows, int64_t columns, const int64_t *dots, const float *scale_a, const float *scale_b,
                       float *c) {
    for (int64_t i = 0; i < rows; i++, dots += columns, c += columns)
        for (int64_t j = 0; j < columns; j += 4) {
            const int64_t *four = dots + j;
            const float value[4] = {(float)four[0], (float)four[1], (float)four[2], (float)four[3]};
            const float32x4_t scale = vmulq_n_f32(vld1q_f32(scale_b + j), scale_a[i]);
            vst1q_f32(c + j, vfmaq_f32(vld1q_f32(c + j), scale, vld1q_f32(value)));
        }
}
