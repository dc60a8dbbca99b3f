/* Segments of small weights by vpmaddubsw, 6 x 8 sums in steps of 4. For weights up to 16, int16 holds the sum of four
 * steps (4 * 2 * 255 * 16 < 2^15), which a vpmaddwd by ones then adds in pairs. This takes half of the instructions of
 * gemm_s8_avx2.c. */
#include "kernels/kernel.h"

#include <immintrin.h>

enum { MR = 6, NR = 8, KR = 4, PART = 4 };

/* Starts from init, and moves a and b past the segment. */
static inline __attribute__((always_inline)) void segment(int32_t steps, const int32_t **a, const int8_t **b,
                                                          const int32_t *init, __m256i sum[MR]) {
    const __m256i ones = _mm256_set1_epi16(1);
    const int32_t *quads = *a;
    const int8_t *bytes = *b;
#pragma GCC unroll 8
    for (int i = 0; i < MR; i++)
        sum[i] = _mm256_loadu_si256((const __m256i *)init);
    for (int32_t left = steps; left > 0; left -= PART) {
        __m256i part[MR];
        __m256i w = _mm256_loadu_si256((const __m256i *)bytes);
#pragma GCC unroll 8
        for (int i = 0; i < MR; i++)
            part[i] = _mm256_maddubs_epi16(_mm256_set1_epi32(quads[i]), w);
        quads += MR;
        bytes += NR * KR;
        for (int32_t more = (left < PART ? left : PART) - 1; more > 0; more--, quads += MR, bytes += NR * KR) {
            w = _mm256_loadu_si256((const __m256i *)bytes);
#pragma GCC unroll 8
            for (int i = 0; i < MR; i++)
                part[i] = _mm256_add_epi16(part[i], _mm256_maddubs_epi16(_mm256_set1_epi32(quads[i]), w));
        }
#pragma GCC unroll 8
        for (int i = 0; i < MR; i++)
            sum[i] = _mm256_add_epi32(sum[i], _mm256_madd_epi16(part[i], ones));
    }
    *a = quads;
    *b = bytes;
}

/* Float32 group scales: one fma per segment on the 6 x 8 float32 sums, which stay in memory (L1). */
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

/* Integer group scales: one vpmulld per segment into the 6 x 8 sums, which stay in memory (L1). */
void hc_gemm_small_split_avx2(int64_t n_segments, const int32_t *steps, const void *a, const int8_t *b,
                              const int32_t *init, const float *scale_b, int32_t *c) {
    const int32_t *quads = a;
    for (int i = 0; i < MR * NR; i += 8)
        _mm256_storeu_si256((__m256i *)(c + i), _mm256_setzero_si256());
    for (int64_t s = 0; s < n_segments; s++, init += NR, scale_b += NR) {
        __m256i sum[MR];
        segment(steps[s], &quads, &b, init, sum);
        const __m256i scales = _mm256_cvtps_epi32(_mm256_loadu_ps(scale_b));
#pragma GCC unroll 8
        for (int i = 0; i < MR; i++) {
            __m256i *to = (__m256i *)(c + i * NR);
            _mm256_storeu_si256(to, _mm256_add_epi32(_mm256_loadu_si256(to), _mm256_mullo_epi32(sum[i], scales)));
        }
    }
}
