/* As gemm_s8_scaled_avxvnni.c, by vpmaddubsw: of weights up to 16 int16 holds four steps (4 * 2 * 255 * 16 < 2^15), which
 * a vpmaddwd by ones then adds in pairs. Half of the instructions of gemm_s8_scaled_avx2.c. */
#include "kernels/kernel.h"

#include <immintrin.h>

enum { MR = 6, NR = 8, KR = 4, PART = 4 };

void hc_gemm_small_scaled_avx2(int64_t n_segments, const int32_t *steps, const void *a, const int8_t *b,
                               const int32_t *init, const float *scale_a, const float *scale_b, float *c,
                               bool accumulate) {
    const __m256i ones = _mm256_set1_epi16(1);
    const int32_t *quads = a;
    for (int i = 0; i < MR * NR && !accumulate; i += 8)
        _mm256_storeu_ps(c + i, _mm256_setzero_ps());
    for (int64_t s = 0; s < n_segments; s++, init += NR, scale_a += MR, scale_b += NR) {
        __m256i sum[MR];
#pragma GCC unroll 8
        for (int i = 0; i < MR; i++)
            sum[i] = _mm256_loadu_si256((const __m256i *)init);
        for (int32_t left = steps[s]; left > 0; left -= PART) {
            __m256i part[MR];
            __m256i w = _mm256_loadu_si256((const __m256i *)b);
#pragma GCC unroll 8
            for (int i = 0; i < MR; i++)
                part[i] = _mm256_maddubs_epi16(_mm256_set1_epi32(quads[i]), w);
            quads += MR;
            b += NR * KR;
            for (int32_t more = (left < PART ? left : PART) - 1; more > 0; more--, quads += MR, b += NR * KR) {
                w = _mm256_loadu_si256((const __m256i *)b);
#pragma GCC unroll 8
                for (int i = 0; i < MR; i++)
                    part[i] = _mm256_add_epi16(part[i], _mm256_maddubs_epi16(_mm256_set1_epi32(quads[i]), w));
            }
#pragma GCC unroll 8
            for (int i = 0; i < MR; i++)
                sum[i] = _mm256_add_epi32(sum[i], _mm256_madd_epi16(part[i], ones));
        }
        const __m256 scales = _mm256_loadu_ps(scale_b);
#pragma GCC unroll 8
        for (int i = 0; i < MR; i++) {
            const __m256 scale = _mm256_mul_ps(_mm256_broadcast_ss(scale_a + i), scales);
            const __m256 dots = _mm256_cvtepi32_ps(sum[i]);
            _mm256_storeu_ps(c + i * NR, _mm256_fmadd_ps(scale, dots, _mm256_loadu_ps(c + i * NR)));
        }
    }
}
