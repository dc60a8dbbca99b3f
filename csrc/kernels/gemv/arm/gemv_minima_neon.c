/* gemv_minima: 16 rows in four registers. Minima are transposed once for all lines of x. */
#include "kernels/gemv/arm/gemv_arm.h"

enum { SEGMENTS = 64 };

static void add_line(int64_t steps, const float *x_scales, const float *sums, const float *turned, float *out) {
    float32x4_t acc[4];
#pragma GCC unroll 4
    for (int i = 0; i < 4; i++)
        acc[i] = vld1q_f32(out + 4 * i);
    for (int64_t s = 0; s < steps; s++)
#pragma GCC unroll 4
        for (int i = 0; i < 4; i++)
            acc[i] = vfmaq_n_f32(acc[i], vmulq_n_f32(vld1q_f32(turned + s * 16 + 4 * i), x_scales[s]), sums[s]);
#pragma GCC unroll 4
    for (int i = 0; i < 4; i++)
        vst1q_f32(out + 4 * i, acc[i]);
}

void hc_gemv_minima_neon(int64_t n, int64_t ld, int64_t n_lines, const float *x_scales, const float *sums,
                         const float *minima, float *out) {
    float turned[SEGMENTS * 16];
    memset(out, 0, (size_t)n_lines * 16 * sizeof *out);
    for (int64_t first = 0; first < n; first += SEGMENTS) {
        const int64_t steps = hc_min(n - first, SEGMENTS);
        for (int64_t s = 0; s < steps; s += 4)
            for (int row = 0; row < 16; row += 4) {
                float32x4_t block[4];
                for (int i = 0; i < 4; i++)
                    block[i] = vld1q_f32(minima + (row + i) * ld + first + s);
                lanes_transpose(block);
                for (int i = 0; i < 4; i++)
                    vst1q_f32(turned + (s + i) * 16 + row, block[i]);
            }
        for (int64_t line = 0; line < n_lines; line++)
            add_line(steps, x_scales + line * ld + first, sums + line * ld + first, turned, out + line * 16);
    }
}
