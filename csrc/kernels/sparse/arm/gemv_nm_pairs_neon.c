/* gemv_nm_pairs: 4 groups in lanes; 4 values of each group are transposed from [group][value] into [value][group]. */
#include "kernels/gemv/arm/gemv_arm.h"

/* Rows `stride` apart, 4 values each, to columns. */
INLINE void columns(const float *from, int64_t stride, float32x4_t out[4]) {
    for (int i = 0; i < 4; i++)
        out[i] = vld1q_f32(from + i * stride);
    transpose_f32(out);
}

void hc_gemv_nm_pairs_neon(int64_t group, int64_t groups, const float *codes, const float *x, const float *scales,
                           float *sums) {
    for (int64_t g = 0; g < groups; g += 4, codes += 4 * group, x += 4 * group) {
        float32x4_t p = vdupq_n_f32(0), c[4], y[4];
        for (int64_t k = 0; k < group; k += 4) {
            columns(codes + k, group, c);
            columns(x + k, group, y);
            for (int64_t i = 0; i < hc_min(group - k, 4); i++)
                p = vfmaq_f32(p, y[i], c[i]);
        }
        const int64_t n = hc_min(groups - g, 4);
        float scale[4] = {0}, lane[4];
        memcpy(scale, scales + g, (size_t)n * sizeof *scale);
        float *to = sums + g % 16;
        vst1q_f32(lane, vfmaq_f32(vld1q_f32(to), vld1q_f32(scale), p));
        memcpy(to, lane, (size_t)n * sizeof *to);
    }
}
