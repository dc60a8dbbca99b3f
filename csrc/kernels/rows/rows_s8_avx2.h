/* Shared by the two kernels of rows_s8 with 256-bit registers. */
#ifndef HC_ROWS_S8_AVX2_H
#define HC_ROWS_S8_AVX2_H

#include "kernels/kernel.h"

#include <immintrin.h>
#include <string.h>

#define INLINE static inline __attribute__((always_inline))

typedef __m256i vector;

INLINE __m128i fold(const vector *sum) {
    const __m256i all = _mm256_hadd_epi32(_mm256_hadd_epi32(sum[0], sum[1]), _mm256_hadd_epi32(sum[2], sum[3]));
    return _mm_add_epi32(_mm256_castsi256_si128(all), _mm256_extracti128_si256(all, 1));
}

INLINE void put(int32_t *c, int n, __m128i folded, int32_t shift, bool accumulate) {
    uint32_t sums[4];
    _mm_storeu_si128((__m128i *)sums, _mm_sub_epi32(folded, _mm_set1_epi32(shift)));
    for (int i = 0; i < n; i++)
        c[i] = (int32_t)(sums[i] + (accumulate ? (uint32_t)c[i] : 0));
}

/* 12 sums and their operands fill 16 registers. */
#define HC_ROWS_CASE(n, n_w)                                                                                           \
    case n:                                                                                                            \
        multiply(args, n, n_w);                                                                                        \
        break;
#define HC_ROWS_CASES                                                                                                  \
    HC_ROWS_CASE(1, 4)                                                                                                 \
    HC_ROWS_CASE(2, 4)                                                                                                 \
    HC_ROWS_CASE(3, 3)                                                                                                 \
    HC_ROWS_CASE(4, 2)                                                                                                 \
    HC_ROWS_CASE(5, 2)                                                                                                 \
    HC_ROWS_CASE(6, 2)

#endif
