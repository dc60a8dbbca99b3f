/* hc_codes_s8_avx2, hc_code_pairs_s8_avx2 and hc_largest_f32_avx2: codes of 8 bits, 32 values at a time, as in
 * codes_s8_avx512.c. */
#include "kernels/conv/codes_s8.h"

#include <immintrin.h>
#include <string.h>

#define INLINE static inline __attribute__((always_inline))

enum { LANES = 8, STEP = 4 * LANES };

typedef __m256i words;

INLINE __m256i magnitude_of(const float *x) {
    return _mm256_and_si256(_mm256_loadu_si256((const __m256i *)(const void *)x), _mm256_set1_epi32(0x7fffffff));
}

INLINE words every(uint32_t value) { return _mm256_set1_epi32((int32_t)value); }
INLINE words larger(words a, words b) { return _mm256_max_epu32(a, b); }
INLINE uint32_t largest_of(words all) {
    __m128i half = _mm_max_epu32(_mm256_castsi256_si128(all), _mm256_extracti128_si256(all, 1));
    half = _mm_max_epu32(half, _mm_shuffle_epi32(half, 0x4e));
    half = _mm_max_epu32(half, _mm_shuffle_epi32(half, 0xb1));
    return (uint32_t)_mm_cvtsi128_si32(half);
}

/* Codes of STEP values plus `zero`; false if they must be computed by division. */
INLINE bool units(const float *x, float reciprocal, int zero, __m256i unit[4]) {
    const __m256 magic = _mm256_set1_ps(0x1.8p23f + (float)zero), by = _mm256_set1_ps(reciprocal);
    const __m256 sign = _mm256_set1_ps(-0.0f);
    __m256 worst = _mm256_setzero_ps();
#pragma GCC unroll 4
    for (int j = 0; j < 4; j++) {
        const __m256 value = _mm256_loadu_ps(x + j * LANES), sum = _mm256_fmadd_ps(value, by, magic);
        const __m256 apart = _mm256_fmsub_ps(value, by, _mm256_sub_ps(sum, magic));
        worst = _mm256_max_ps(worst, _mm256_andnot_ps(sign, apart));
        unit[j] = _mm256_sub_epi32(_mm256_castps_si256(sum), _mm256_set1_epi32(0x4b400000));
    }
    return _mm256_movemask_ps(_mm256_cmp_ps(worst, _mm256_set1_ps(SURE), _CMP_GT_OQ)) == 0;
}

INLINE void put(const __m256i unit[4], const int form, float scale, int64_t at, void *to) {
    if (form == HC_PANEL_F32 || form == HC_CODES_ROUNDED) {
        const __m256i most = _mm256_set1_epi32(LARGEST), least = _mm256_set1_epi32(-LARGEST);
#pragma GCC unroll 4
        for (int j = 0; j < 4; j++) {
            const __m256 code = _mm256_cvtepi32_ps(_mm256_max_epi32(_mm256_min_epi32(unit[j], most), least));
            const bool rounded = form == HC_CODES_ROUNDED;
            _mm256_storeu_ps((float *)to + at + j * LANES, rounded ? _mm256_mul_ps(code, _mm256_set1_ps(scale)) : code);
        }
        return;
    }
    if (form == HC_PANEL_S16) {
        const __m256i most = _mm256_set1_epi16(LARGEST), least = _mm256_set1_epi16(-LARGEST);
#pragma GCC unroll 2
        for (int h = 0; h < 2; h++) {
            const __m256i words = _mm256_packs_epi32(unit[2 * h], unit[2 * h + 1]);
            const __m256i cut = _mm256_max_epi16(_mm256_min_epi16(words, most), least);
            _mm256_storeu_si256((__m256i *)((int16_t *)to + at) + h, _mm256_permute4x64_epi64(cut, 0xd8));
        }
        return;
    }
    const __m256i lanes = _mm256_setr_epi32(0, 4, 1, 5, 2, 6, 3, 7);
    const __m256i bytes =
        _mm256_packus_epi16(_mm256_packs_epi32(unit[0], unit[1]), _mm256_packs_epi32(unit[2], unit[3]));
    const __m256i cut = _mm256_max_epu8(bytes, _mm256_set1_epi8(ZERO - LARGEST));
    _mm256_storeu_si256((__m256i *)((uint8_t *)to + at), _mm256_permutevar8x32_epi32(cut, lanes));
}

INLINE void put_pair(words low, words high, int32_t *to) {
    const __m256i most = _mm256_set1_epi16(LARGEST), least = _mm256_set1_epi16(-LARGEST);
    const __m256i pair = _mm256_blend_epi16(low, _mm256_slli_epi32(high, 16), 0xaa);
    _mm256_storeu_si256((__m256i *)(void *)to, _mm256_max_epi16(_mm256_min_epi16(pair, most), least));
}

#include "kernels/conv/codes_s8_units.h"

HC_CODES_S8(avx2)
