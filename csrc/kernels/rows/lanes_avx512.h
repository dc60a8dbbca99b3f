/* Shared by the kernels with rows of x in lanes: dot products of a few columns, and the storing of sums. */
#ifndef HC_LANES_AVX512_H
#define HC_LANES_AVX512_H

#include "kernels/dots/avx512vnni.h"
#include "kernels/kernel.h"

#include <immintrin.h>
#include <string.h>

#define INLINE static inline __attribute__((always_inline))

enum { LANES = 16, STEP = 64, MOST_W = 8, MOST_X = 4, CHAINS = 2 };

/* Adds the next `width` columns: 4, or 8, of which a register holds those of half as many rows. */
INLINE void add_step(const int n_x, const int n_w, const int width, const uint8_t *x, const int8_t *const *w,
                     int64_t ld_w, __m512i sum[][MOST_X]) {
    __m512i values[MOST_X];
#pragma GCC unroll 4
    for (int v = 0; v < n_x; v++)
        values[v] = _mm512_loadu_si512(x + v * STEP);
#pragma GCC unroll 8
    for (int b = 0; b < n_w; b++) {
        int64_t bytes = 0;
        memcpy(&bytes, w[b / 4] + b % 4 * ld_w, (size_t)width);
        const __m512i codes = width == 4 ? _mm512_set1_epi32((int32_t)bytes) : _mm512_set1_epi64(bytes);
#pragma GCC unroll 4
        for (int v = 0; v < n_x; v++)
            sum[b][v] = dot(sum[b][v], values[v], codes);
    }
}

INLINE void advance(const int n_w, const int8_t **w, int64_t by) {
#pragma GCC unroll 2
    for (int b = 0; b < n_w; b += 4)
        w[b / 4] += by;
}

INLINE void put_lanes(int32_t *c, const int width, bool accumulate, __m512i added, __m512i sum) {
    if (width == 4) {
        const __m512i from = accumulate ? _mm512_loadu_si512(c) : _mm512_setzero_si512();
        _mm512_storeu_si512(c, _mm512_add_epi32(from, _mm512_sub_epi32(sum, added)));
    } else {
        const __m256i from = accumulate ? _mm256_loadu_si256((const __m256i *)(void *)c) : _mm256_setzero_si256();
        const __m256i both = _mm512_cvtepi64_epi32(_mm512_add_epi32(sum, _mm512_srli_epi64(sum, 32)));
        const __m256i dots = _mm256_sub_epi32(both, _mm512_castsi512_si256(added));
        _mm256_storeu_si256((__m256i *)(void *)c, _mm256_add_epi32(from, dots));
    }
}

#endif
