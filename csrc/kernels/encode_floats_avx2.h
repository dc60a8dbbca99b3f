/* Codes of small floats, 8 values at a time (kernels/encode_avx2.h).
 *
 * Adding 2^(e + 23 - m) to a magnitude with exponent e (at least the smallest normal one) rounds it to m bits, RNE, and
 * leaves them low in the sum. What is added has the code of 2^e in these bits too, so that the sum ends in the code.
 */
#ifndef HC_ENCODE_FLOATS_AVX2_H
#define HC_ENCODE_FLOATS_AVX2_H

#include "kernels/encode.h"

#include <immintrin.h>

static inline __attribute__((always_inline)) __m256i half_floats(const float *x, __m256 reciprocal, float limit,
                                                                 hc_code_mode mode, __m256i *apart) {
    const hc_small_float type = small_float(mode);
    const int m = type.fraction_bits;
    const int32_t least = type.least << 23;
    const __m256 quotient = _mm256_mul_ps(_mm256_loadu_ps(x), reciprocal);
    const __m256 absolute = _mm256_andnot_ps(_mm256_set1_ps(-0.0f), quotient);
    const __m256 cut = _mm256_min_ps(absolute, _mm256_set1_ps(limit));
    const __m256i field = _mm256_and_si256(_mm256_max_epi32(_mm256_castps_si256(cut), _mm256_set1_epi32(least)),
                                           _mm256_set1_epi32(0x7f800000));
    const __m256i code = _mm256_srli_epi32(field, 23 - m);
    const __m256 add = _mm256_castsi256_ps(
        _mm256_add_epi32(_mm256_add_epi32(field, code), _mm256_set1_epi32(((23 - m) << 23) - (type.least << m))));
    __m256i sum;
    if (is_exact(mode)) {
        sum = _mm256_castps_si256(_mm256_add_ps(cut, add));
    } else { /* the same code from a little less and a little more: no midpoint between */
        sum = _mm256_castps_si256(_mm256_fmadd_ps(cut, _mm256_set1_ps(1 - HC_QUOTIENT_ERROR), add));
        const __m256 more = _mm256_fmadd_ps(cut, _mm256_set1_ps(1 + HC_QUOTIENT_ERROR), add);
        *apart = _mm256_or_si256(*apart, _mm256_xor_si256(sum, _mm256_castps_si256(more)));
    }
    const __m256i sign = _mm256_srli_epi32(_mm256_castps_si256(quotient), 32 - type.bits);
    const __m256i magnitude = _mm256_set1_epi32((1 << (type.bits - 1)) - 1);
    return _mm256_or_si256(_mm256_and_si256(sum, magnitude), _mm256_andnot_si256(magnitude, sign));
}

/* Four units as line_codes: false where a quotient is near a midpoint. */
static inline __attribute__((always_inline)) bool line_floats(const float *x, const uint8_t *group_of,
                                                              const float *reciprocal, float limit, hc_code_mode mode,
                                                              uint8_t *codes) {
    const __m256i lanes = _mm256_setr_epi32(0, 4, 1, 5, 2, 6, 3, 7);
    __m256i apart = _mm256_setzero_si256();
#pragma GCC unroll 2
    for (int i = 0; i < 4; i += 2) {
        const __m256 even = _mm256_set1_ps(reciprocal[group_of[i]]), odd = _mm256_set1_ps(reciprocal[group_of[i + 1]]);
        const float *from = x + i * 16;
        const __m256i low = _mm256_packus_epi32(half_floats(from, even, limit, mode, &apart),
                                                half_floats(from + 8, even, limit, mode, &apart));
        const __m256i high = _mm256_packus_epi32(half_floats(from + 16, odd, limit, mode, &apart),
                                                 half_floats(from + 24, odd, limit, mode, &apart));
        const __m256i bytes = _mm256_packus_epi16(low, high);
        _mm256_storeu_si256((__m256i *)(codes + i * 16), _mm256_permutevar8x32_epi32(bytes, lanes));
    }
    return is_exact(mode) || _mm256_testz_si256(apart, apart);
}

static inline __attribute__((always_inline)) __m256i half_levels(const float *x, __m256 reciprocal, const float *levels,
                                                                 __m256 *nearest) {
    const __m256 one = _mm256_set1_ps(1), sign = _mm256_set1_ps(-0.0f);
    __m256 quotient = _mm256_mul_ps(_mm256_loadu_ps(x), reciprocal);
    quotient = _mm256_max_ps(_mm256_min_ps(quotient, one), _mm256_xor_ps(sign, one));
    /* adding 1.5 * 2^23 rounds to an integer, in the low bits of the sum */
    const __m256 step = _mm256_fmadd_ps(quotient, _mm256_set1_ps(HC_LEVEL_STEPS), _mm256_set1_ps(0x1.8p23f));
    const __m256i index = _mm256_and_si256(_mm256_castps_si256(step), _mm256_set1_epi32(31));
    const __m256 midpoint = _mm256_i32gather_ps(levels, index, 4);
    const __m256 below = _mm256_sub_ps(midpoint, quotient);
    *nearest = _mm256_min_ps(*nearest, _mm256_andnot_ps(sign, below));
    return _mm256_add_epi32(_mm256_and_si256(_mm256_castps_si256(midpoint), _mm256_set1_epi32(15)),
                            _mm256_srli_epi32(_mm256_castps_si256(below), 31));
}

/* Codes of levels, four units as line_codes. */
static inline __attribute__((always_inline)) bool
line_levels(const float *x, const uint8_t *group_of, const float *reciprocal, const float *levels, uint8_t *codes) {
    const __m256i lanes = _mm256_setr_epi32(0, 4, 1, 5, 2, 6, 3, 7);
    __m256 nearest = _mm256_set1_ps(1);
#pragma GCC unroll 2
    for (int i = 0; i < 4; i += 2) {
        const __m256 even = _mm256_set1_ps(reciprocal[group_of[i]]), odd = _mm256_set1_ps(reciprocal[group_of[i + 1]]);
        const float *from = x + i * 16;
        const __m256i low = _mm256_packus_epi32(half_levels(from, even, levels, &nearest),
                                                half_levels(from + 8, even, levels, &nearest));
        const __m256i high = _mm256_packus_epi32(half_levels(from + 16, odd, levels, &nearest),
                                                 half_levels(from + 24, odd, levels, &nearest));
        _mm256_storeu_si256((__m256i *)(codes + i * 16),
                            _mm256_permutevar8x32_epi32(_mm256_packus_epi16(low, high), lanes));
    }
    return _mm256_movemask_ps(_mm256_cmp_ps(nearest, _mm256_set1_ps(HC_LEVEL_ERROR), _CMP_LE_OQ)) == 0;
}

#endif
