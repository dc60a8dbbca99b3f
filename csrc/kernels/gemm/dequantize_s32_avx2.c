/* The one scaling of a folded product, 4 values at a time in float64. */
#include "kernels/kernel.h"

#include <immintrin.h>

void hc_dequantize_s32_avx2(int64_t rows, int64_t columns, const int32_t *c, int64_t ldc, const float *scale_a,
                            const float *scale_b, float *out, int64_t ldo) {
    for (int64_t i = 0; i < rows; i++, c += ldc, out += ldo) {
        int64_t j = 0;
        for (; j + 4 <= columns; j += 4) {
            const __m256d scales = _mm256_cvtps_pd(_mm_loadu_ps(scale_b + j));
            const __m256d sums = _mm256_cvtepi32_pd(_mm_loadu_si128((const __m128i *)(c + j)));
            const __m256d scale = _mm256_mul_pd(_mm256_set1_pd((double)scale_a[i]), scales);
            _mm_storeu_ps(out + j, _mm256_cvtpd_ps(_mm256_mul_pd(scale, sums)));
        }
        for (; j < columns; j++)
            out[j] = (float)((double)scale_a[i] * (double)scale_b[j] * (double)c[j]);
    }
}
