/* gemv_chain: 4 rows in lanes, four times; blocks of 4 segments are transposed. */
#include "kernels/gemv/arm/gemv_arm.h"

void hc_gemv_chain_neon(int64_t n, int64_t ld, const float *x_scales, const float *scales, const void *dots,
                        const int32_t *corrections, float *out) {
    for (int first = 0; first < 16; first += 4) {
        float32x4_t acc = vdupq_n_f32(0);
        for (int64_t s = 0; s < n; s += 4) {
            const int64_t steps = hc_min(n - s, 4);
            float x_scale[4] = {0};
            int32_t correction[4] = {0};
            memcpy(x_scale, x_scales + s, (size_t)steps * sizeof *x_scale);
            if (corrections)
                memcpy(correction, corrections + s, (size_t)steps * sizeof *correction);
            float32x4_t scale[4], dot[4];
            for (int i = 0; i < 4; i++) {
                const int64_t place = (first + i) * ld + s;
                const int32x4_t stored = vld1q_s32((const int32_t *)dots + place);
                scale[i] = vmulq_f32(vld1q_f32(x_scale), vld1q_f32(scales + place));
                dot[i] = corrections ? vcvtq_f32_s32(vsubq_s32(stored, vld1q_s32(correction)))
                                     : vreinterpretq_f32_s32(stored);
            }
            lanes_transpose(scale);
            lanes_transpose(dot);
            for (int64_t i = 0; i < steps; i++)
                acc = vfmaq_f32(acc, scale[i], dot[i]);
        }
        vst1q_f32(out + first, acc);
    }
}
