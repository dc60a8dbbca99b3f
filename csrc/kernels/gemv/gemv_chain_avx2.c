/* gemv_chain: 8 rows in lanes, twice; blocks of 8 segments are transposed. */
#include "base/lanes/avx2.h"
#include "kernels/kernel.h"

void hc_gemv_chain_avx2(int64_t n, int64_t ld, const float *x_scales, const float *scales, const void *dots,
                        const int32_t *corrections, float *out) {
    const __m256i lanes = _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7);
    for (int half = 0; half < 16; half += 8) {
        __m256 acc = _mm256_setzero_ps();
        for (int64_t s = 0; s < n; s += 8) {
            const int64_t steps = hc_min(n - s, 8);
            const __m256i mask = _mm256_cmpgt_epi32(_mm256_set1_epi32((int)steps), lanes);
            const __m256 x_scale = _mm256_maskload_ps(x_scales + s, mask);
            const __m256i correction =
                corrections ? _mm256_maskload_epi32(corrections + s, mask) : _mm256_setzero_si256();
            __m256 scale[8], dot[8];
            for (int i = 0; i < 8; i++) {
                const int64_t place = (half + i) * ld + s;
                scale[i] = _mm256_mul_ps(x_scale, _mm256_loadu_ps(scales + place));
                const __m256i stored = _mm256_loadu_si256((const __m256i *)((const int32_t *)dots + place));
                dot[i] = corrections ? _mm256_cvtepi32_ps(_mm256_sub_epi32(stored, correction))
                                     : _mm256_castsi256_ps(stored);
            }
            lanes_transpose(scale);
            lanes_transpose(dot);
            for (int64_t i = 0; i < steps; i++)
                acc = _mm256_fmadd_ps(scale[i], dot[i], acc);
        }
        _mm256_storeu_ps(out + half, acc);
    }
}
