/* Small weights with float32 group scales: one fma a segment on the 6 x 8 float32 sums, which stay in memory (L1). */
#include "kernels/gemm/gemm_small_avx2.h"

void hc_gemm_small_scaled_avx2(int64_t n_segments, const int32_t *steps, const void *a, const int8_t *b,
                               const int32_t *init, const float *scale_a, const float *scale_b, float *c,
                               bool accumulate) {
    const int32_t *quads = a;
    for (int i = 0; i < MR * NR && !accumulate; i += 8)
        _mm256_storeu_ps(c + i, _mm256_setzero_ps());
    for (int64_t s = 0; s < n_segments; s++, init += NR, scale_a += MR, scale_b += NR) {
        __m256i sum[MR];
        segment(steps[s], &quads, &b, init, sum);
        const __m256 scales = _mm256_loadu_ps(scale_b);
#pragma GCC unroll 8
        for (int i = 0; i < MR; i++) {
            const __m256 scale = _mm256_mul_ps(_mm256_broadcast_ss(scale_a + i), scales);
            const __m256 dots = _mm256_cvtepi32_ps(sum[i]);
            _mm256_storeu_ps(c + i * NR, _mm256_fmadd_ps(scale, dots, _mm256_loadu_ps(c + i * NR)));
        }
    }
}
