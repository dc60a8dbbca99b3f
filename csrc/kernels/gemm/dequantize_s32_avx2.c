/* The final scaling of a folded matmul, 8 columns at a time in float64. Scales of columns are widened once for all
 * rows. */
#include "kernels/kernel.h"

#include <immintrin.h>

void hc_dequantize_s32_avx2(int64_t rows, int64_t columns, const int32_t *c, int64_t ldc, const float *scale_a,
                            const float *scale_b, float *out, int64_t ldo) {
    int64_t j = 0;
    for (; j + 8 <= columns; j += 8) {
        const __m256d low = _mm256_cvtps_pd(_mm_loadu_ps(scale_b + j));
        const __m256d high = _mm256_cvtps_pd(_mm_loadu_ps(scale_b + j + 4));
        for (int64_t i = 0; i < rows; i++) {
            const __m128i *sums = (const __m128i *)(c + i * ldc + j);
            const __m256d scale = _mm256_set1_pd((double)scale_a[i]);
            const __m256d first = _mm256_cvtepi32_pd(_mm_loadu_si128(sums));
            const __m256d last = _mm256_cvtepi32_pd(_mm_loadu_si128(sums + 1));
            float *to = out + i * ldo + j;
            _mm_storeu_ps(to, _mm256_cvtpd_ps(_mm256_mul_pd(_mm256_mul_pd(scale, low), first)));
            _mm_storeu_ps(to + 4, _mm256_cvtpd_ps(_mm256_mul_pd(_mm256_mul_pd(scale, high), last)));
        }
    }
    for (; j < columns; j++)
        for (int64_t i = 0; i < rows; i++)
            out[i * ldo + j] = (float)((double)scale_a[i] * (double)scale_b[j] * (double)c[i * ldc + j]);
}
