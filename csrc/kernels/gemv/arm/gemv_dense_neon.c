/* gemv_dense: 4 rows in lanes; blocks of 4 columns are transposed. Four sums run at a time, which hides the latency of
 * fma. */
#include "kernels/gemv/arm/gemv_arm.h"

/* 4 x n_groups rows; n_groups x n_vectors is 4. */
INLINE void multiply(int64_t n, const float *const *rows, int n_groups, int n_vectors, const float *x, int64_t ldx,
                     float *out) {
    float32x4_t acc[4];
    for (int i = 0; i < 4; i++)
        acc[i] = vdupq_n_f32(0);
    for (int64_t k = 0; k < n; k += 4) {
        const int64_t steps = hc_min(n - k, 4);
#pragma GCC unroll 4
        for (int g = 0; g < n_groups; g++) {
            float32x4_t w[4];
#pragma GCC unroll 4
            for (int i = 0; i < 4; i++) {
                float last[4] = {0};
                if (steps < 4)
                    memcpy(last, rows[g * 4 + i] + k, (size_t)steps * sizeof *last);
                w[i] = steps < 4 ? vld1q_f32(last) : vld1q_f32(rows[g * 4 + i] + k);
            }
            lanes_transpose(w);
            for (int64_t i = 0; i < steps; i++)
                for (int v = 0; v < n_vectors; v++)
                    acc[g * n_vectors + v] = vfmaq_f32(acc[g * n_vectors + v], vdupq_n_f32(x[v * ldx + k + i]), w[i]);
        }
    }
    for (int g = 0; g < n_groups; g++)
        for (int v = 0; v < n_vectors; v++)
            vst1q_f32(out + v * HC_GEMV_DENSE_ROWS + g * 4, acc[g * n_vectors + v]);
}

void hc_gemv_dense_neon(int64_t n, const float *const *rows, int n_vectors, const float *x, int64_t ldx, float *out) {
    if (n_vectors == 1)
        multiply(n, rows, 4, 1, x, ldx, out);
    for (int first = 0; n_vectors == 2 && first < HC_GEMV_DENSE_ROWS; first += 8)
        multiply(n, rows + first, 2, 2, x, ldx, out + first);
    for (int first = 0; n_vectors == 4 && first < HC_GEMV_DENSE_ROWS; first += 4)
        multiply(n, rows + first, 1, 4, x, ldx, out + first);
}
