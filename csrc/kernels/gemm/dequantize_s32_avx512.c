/* The final scaling of a folded matmul, 16 values at a time in float64. Consecutive rows often share a scale (of an
 * image of a convolution, or of weights). Its products with the scales of the columns are then reused. */
#include "kernels/kernel.h"

#include <immintrin.h>
#include <string.h>

#define INLINE static inline __attribute__((always_inline))

enum { LANES = 8, STEP = 2 * LANES };

INLINE void some(int64_t rows, const __mmask16 mask, const int32_t *c, int64_t ldc, const float *scale_a,
                 const float *scale_b, float *out, int64_t ldo) {
    const __mmask8 half[2] = {(__mmask8)mask, (__mmask8)(mask >> LANES)};
    __m512d scales[2], both[2] = {{0}};
#pragma GCC unroll 2
    for (int h = 0; h < 2; h++)
        scales[h] = _mm512_cvtps_pd(_mm256_maskz_loadu_ps(half[h], scale_b + h * LANES));
    int32_t last = 0; /* bits of the scale before */
    for (int64_t i = 0; i < rows; i++, c += ldc, out += ldo) {
        int32_t bits;
        memcpy(&bits, scale_a + i, sizeof bits);
        if (i == 0 || bits != last) {
            const __m512d scale = _mm512_set1_pd((double)scale_a[i]);
            both[0] = _mm512_mul_pd(scale, scales[0]);
            both[1] = _mm512_mul_pd(scale, scales[1]);
            last = bits;
        }
#pragma GCC unroll 2
        for (int h = 0; h < 2; h++) {
            const __m512d sums = _mm512_cvtepi32_pd(_mm256_maskz_loadu_epi32(half[h], c + h * LANES));
            _mm256_mask_storeu_ps(out + h * LANES, half[h], _mm512_cvtpd_ps(_mm512_mul_pd(both[h], sums)));
        }
    }
}

void hc_dequantize_s32_avx512(int64_t rows, int64_t columns, const int32_t *c, int64_t ldc, const float *scale_a,
                              const float *scale_b, float *out, int64_t ldo) {
    int64_t j = 0;
    for (; j + STEP <= columns; j += STEP)
        some(rows, 0xffff, c + j, ldc, scale_a, scale_b + j, out + j, ldo);
    if (j < columns)
        some(rows, (__mmask16)((1u << (columns - j)) - 1), c + j, ldc, scale_a, scale_b + j, out + j, ldo);
}
