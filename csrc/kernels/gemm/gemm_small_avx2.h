/* Segments of small weights by vpmaddubsw, 6 x 8 sums of steps of 4: of weights up to 16 int16 holds four steps
 * (4 * 2 * 255 * 16 < 2^15), which a vpmaddwd by ones then adds in pairs. Half of the instructions of gemm_s8_avx2.c. */
#ifndef HC_GEMM_SMALL_AVX2_H
#define HC_GEMM_SMALL_AVX2_H

#include "kernels/kernel.h"

#include <immintrin.h>

enum { MR = 6, NR = 8, KR = 4, PART = 4 };

/* Starts from init, and moves a and b behind the segment. */
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

#endif
