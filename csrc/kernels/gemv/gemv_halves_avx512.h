/* Float16 numbers of rows, transposed to lanes of registers, for gemv_minima and gemv_scaled. */
#ifndef HC_GEMV_HALVES_AVX512_H
#define HC_GEMV_HALVES_AVX512_H

#include "base/base.h"
#include "base/lanes/avx512.h"

#define INLINE static inline __attribute__((always_inline))

/* Float16 scales s .. s + 15 of 16 rows as float32. Scales whose bit in `mask` is 0 are not read and become 0. */
INLINE void load_halves(const uint8_t *const *from, int64_t s, __mmask16 mask, __m512 *scales) {
    const __m512i even = _mm512_setr_epi64(0, 8, 4, 12, 2, 10, 6, 14);
    const __m512i odd = _mm512_setr_epi64(1, 9, 5, 13, 3, 11, 7, 15);
    __m512i a[8], b[8];
#pragma GCC unroll 8
    for (int i = 0; i < 8; i++) {
        const __m256i low = _mm256_maskz_loadu_epi16(mask, from[i] + 2 * s);
        a[i] = _mm512_inserti64x4(_mm512_castsi256_si512(low), _mm256_maskz_loadu_epi16(mask, from[i + 8] + 2 * s), 1);
    }
#pragma GCC unroll 4
    for (int i = 0; i < 8; i += 2) {
        b[i] = _mm512_unpacklo_epi16(a[i], a[i + 1]);
        b[i + 1] = _mm512_unpackhi_epi16(a[i], a[i + 1]);
    }
#pragma GCC unroll 2
    for (int i = 0; i < 8; i += 4) {
        a[i] = _mm512_unpacklo_epi32(b[i], b[i + 2]);
        a[i + 1] = _mm512_unpackhi_epi32(b[i], b[i + 2]);
        a[i + 2] = _mm512_unpacklo_epi32(b[i + 1], b[i + 3]);
        a[i + 3] = _mm512_unpackhi_epi32(b[i + 1], b[i + 3]);
    }
#pragma GCC unroll 4
    for (int i = 0; i < 4; i++) { /* segments 2 i and 2 i + 1 below, those 8 further above */
        const __m512i first = _mm512_permutex2var_epi64(a[i], even, a[i + 4]);
        const __m512i second = _mm512_permutex2var_epi64(a[i], odd, a[i + 4]);
        scales[2 * i] = _mm512_cvtph_ps(_mm512_castsi512_si256(first));
        scales[2 * i + 1] = _mm512_cvtph_ps(_mm512_castsi512_si256(second));
        scales[2 * i + 8] = _mm512_cvtph_ps(_mm512_extracti64x4_epi64(first, 1));
        scales[2 * i + 9] = _mm512_cvtph_ps(_mm512_extracti64x4_epi64(second, 1));
    }
}

#endif
