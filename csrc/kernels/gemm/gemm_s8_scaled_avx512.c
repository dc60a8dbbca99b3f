/* The int8 matmul with float32 group scales without VNNI: the sums of a segment as in gemm_s8_avx512.c, then one fma
 * on the 12 x 16 float32 sums, which stay in memory (L1). */
#include "kernels/dots/avx512.h"
#include "kernels/kernel.h"

#include <immintrin.h>

enum { MR = 12, NR = 16, KR = 4 };

void hc_gemm_s8_scaled_avx512(int64_t n_segments, const int32_t *steps, const void *a, const int8_t *b,
                              const int32_t *init, const float *scale_a, const float *scale_b, float *c,
                              bool accumulate) {
    (void)init;
    const int64_t *quads = a;
    const __m512i even = _mm512_set_epi32(30, 28, 26, 24, 22, 20, 18, 16, 14, 12, 10, 8, 6, 4, 2, 0);
    const __m512i odd = _mm512_add_epi32(even, _mm512_set1_epi32(1));
    for (int i = 0; i < MR && !accumulate; i++)
        _mm512_storeu_ps(c + i * NR, _mm512_setzero_ps());
    for (int64_t s = 0; s < n_segments; s++, scale_a += MR, scale_b += NR) {
        __m512i sum[MR][2];
#pragma GCC unroll 16
        for (int i = 0; i < MR; i++)
            sum[i][0] = sum[i][1] = _mm512_setzero_si512();
        for (int32_t step = steps[s]; step > 0; step--, quads += MR, b += NR * KR) {
            const __m512i low = _mm512_cvtepi8_epi16(_mm256_loadu_si256((const __m256i *)b));
            const __m512i high = _mm512_cvtepi8_epi16(_mm256_loadu_si256((const __m256i *)(b + 32)));
#pragma GCC unroll 16
            for (int i = 0; i < MR; i++) {
                const __m512i x = _mm512_set1_epi64(quads[i]);
                sum[i][0] = dot(sum[i][0], x, low);
                sum[i][1] = dot(sum[i][1], x, high);
            }
        }
        const __m512 scales = _mm512_loadu_ps(scale_b);
#pragma GCC unroll 16
        for (int i = 0; i < MR; i++) {
            const __m512i dots = _mm512_add_epi32(_mm512_permutex2var_epi32(sum[i][0], even, sum[i][1]),
                                                  _mm512_permutex2var_epi32(sum[i][0], odd, sum[i][1]));
            const __m512 scale = _mm512_mul_ps(_mm512_set1_ps(scale_a[i]), scales);
            _mm512_storeu_ps(c + i * NR, _mm512_fmadd_ps(scale, _mm512_cvtepi32_ps(dots), _mm512_loadu_ps(c + i * NR)));
        }
    }
}
