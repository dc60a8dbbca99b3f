/* The final scaling of a folded matmul with 64-bit sums, 8 values at a time in float64. */
#include "kernels/kernel.h"

#include <immintrin.h>

void hc_dequantize_s64_avx512(int64_t rows, int64_t columns, const int64_t *c, int64_t ldc, const float *scale_a,
                              const float *scale_b, float *out, int64_t ldo) {
    for (int64_t j = 0; j < columns; j += 8) {
        const __mmask8 mask = (__mmask8)(columns - j < 8 ? (1u << (columns - j)) - 1 : 0xff);
        const __m512d scales = _mm512_cvtps_pd(_mm256_maskz_loadu_ps(mask, scale_b + j));
        for (int64_t i = 0; i < rows; i++) {
            const __m512d sums = _mm512_cvtepi64_pd(_mm512_maskz_loadu_epi64(mask, c + i * ldc + j));
            const __m512d scale = _mm512_mul_pd(_mm512_set1_pd((double)scale_a[i]), scales);
            _mm256_mask_storeu_ps(out + i * ldo + j, mask, _mm512_cvtpd_ps(_mm512_mul_pd(scale, sums)));
        }
    }
}
