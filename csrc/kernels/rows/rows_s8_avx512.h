/* Shared by the two kernels of rows_s8 with 512-bit registers. */
#ifndef HC_ROWS_S8_AVX512_H
#define HC_ROWS_S8_AVX512_H

#include "kernels/kernel.h"

#include <immintrin.h>

#define INLINE static inline __attribute__((always_inline))

typedef __m512i vector;

INLINE __m128i fold(const vector *sum) {
    const __m512i low = _mm512_add_epi32(_mm512_unpacklo_epi32(sum[0], sum[1]), _mm512_unpackhi_epi32(sum[0], sum[1]));
    const __m512i high = _mm512_add_epi32(_mm512_unpacklo_epi32(sum[2], sum[3]), _mm512_unpackhi_epi32(sum[2], sum[3]));
    const __m512i all = _mm512_add_epi32(_mm512_unpacklo_epi64(low, high), _mm512_unpackhi_epi64(low, high));
    const __m256i half = _mm256_add_epi32(_mm512_castsi512_si256(all), _mm512_extracti64x4_epi64(all, 1));
    return _mm_add_epi32(_mm256_castsi256_si128(half), _mm256_extracti128_si256(half, 1));
}

INLINE void put(int32_t *c, int n, __m128i folded, int32_t shift, bool accumulate) {
    const __mmask8 present = (__mmask8)((1u << n) - 1);
    const __m128i from = accumulate ? _mm_maskz_loadu_epi32(present, c) : _mm_setzero_si128();
    _mm_mask_storeu_epi32(c, present, _mm_add_epi32(from, _mm_sub_epi32(folded, _mm_set1_epi32(shift))));
}

/* The number of rows of w for 24 independent sums. */
#define HC_ROWS_CASE(n)                                                                                                \
    case n:                                                                                                            \
        multiply(args, n, n <= 6 ? 4 : 3);                                                                             \
        break;
#define HC_ROWS_CASES                                                                                                  \
    HC_ROWS_CASE(1)                                                                                                    \
    HC_ROWS_CASE(2)                                                                                                    \
    HC_ROWS_CASE(3)                                                                                                    \
    HC_ROWS_CASE(4)                                                                                                    \
    HC_ROWS_CASE(5)                                                                                                    \
    HC_ROWS_CASE(6)                                                                                                    \
    HC_ROWS_CASE(7)                                                                                                    \
    HC_ROWS_CASE(8)

#endif
