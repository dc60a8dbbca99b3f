/* hc_attend_avx2 and hc_attend_codes_avx2: kernels/layers/layers.h. */
#define HC_FLOATS 8
#define HC_ROWS 3
#include "kernels/layers/sums.h"

#include "kernels/kernel.h"

#include <immintrin.h>

#define HALVES(a, b) _mm256_add_ps(_mm256_permute2f128_ps(a, b, 0x20), _mm256_permute2f128_ps(a, b, 0x31))
#define INSIDE(a, b, low, high) _mm256_add_ps(_mm256_shuffle_ps(a, b, low), _mm256_shuffle_ps(a, b, high))

static inline hc_floats hc_fold(const hc_floats *keys) {
    __m256 sums[4];
#pragma GCC unroll 4
    for (int j = 0; j < 4; j++)
        sums[j] = HALVES((__m256)keys[j], (__m256)keys[j + 4]);
    const __m256 even = INSIDE(sums[0], sums[1], 0x44, 0xee), odd = INSIDE(sums[2], sums[3], 0x44, 0xee);
    return (hc_floats)INSIDE(even, odd, 0x88, 0xdd);
}

static inline void hc_code_floats(const int8_t *codes, hc_floats *values) {
#pragma GCC unroll 2
    for (int i = 0; i < 2; i++) {
        const __m128i byte = _mm_loadl_epi64((const __m128i *)(const void *)(codes + 8 * i));
        values[i] = (hc_floats)_mm256_cvtepi32_ps(_mm256_cvtepi8_epi32(byte));
    }
}

#include "kernels/layers/attend.h"

void hc_attend_avx2(const hc_attend *some) { hc_attend_body(some, false, false); }

void hc_attend_codes_avx2(const hc_attend *some) { hc_attend_body(some, some->k.codes != NULL, some->v.codes != NULL); }
