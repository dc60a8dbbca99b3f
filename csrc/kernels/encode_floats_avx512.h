/* Codes of small floats, 16 values at a time (kernels/encode_avx512.h).
 *
 * Adding 2^(e + 23 - m) to a magnitude with exponent e (at least the smallest normal one) rounds it to m bits, RNE, and
 * leaves them low in the sum. What is added has the code of 2^e in these bits too, so that the sum ends in the code.
 */
#ifndef HC_ENCODE_FLOATS_AVX512_H
#define HC_ENCODE_FLOATS_AVX512_H

#include "kernels/encode.h"

#include <immintrin.h>

/* What is added, for exponent fields that end like first .. first + 15 in five bits. */
static inline __attribute__((always_inline)) __m512 addends(const hc_small_float *type, int first) {
    const __m512i lane = _mm512_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15);
    const __m512i index = _mm512_add_epi32(lane, _mm512_set1_epi32(first - type->least));
    const __m512i above = _mm512_and_si512(index, _mm512_set1_epi32(type->bits == 8 ? 31 : 15));
    const __m512i field = _mm512_add_epi32(above, _mm512_set1_epi32(type->least + 23 - type->fraction_bits));
    return _mm512_castsi512_ps(
        _mm512_or_si512(_mm512_slli_epi32(field, 23), _mm512_slli_epi32(above, type->fraction_bits)));
}

/* Four units as line_codes: false where a quotient is near a midpoint. */
static inline __attribute__((always_inline)) bool line_floats(const float *x, const uint8_t *group_of,
                                                              const float *reciprocal, float limit, hc_code_mode mode,
                                                              uint8_t *codes) {
    const hc_small_float type = small_float(mode);
    const __m512 addend = addends(&type, 0), addend16 = addends(&type, 16);
    const __m512 largest = _mm512_set1_ps(limit);
    const __m512i least = _mm512_set1_epi32(type.least << 23);
    const __m512i magnitude = _mm512_set1_epi32((1 << (type.bits - 1)) - 1);
    __m512i unit[4], apart = _mm512_setzero_si512();
#pragma GCC unroll 4
    for (int i = 0; i < 4; i++) {
        const __m512 quotient = _mm512_mul_ps(_mm512_loadu_ps(x + i * 16), _mm512_set1_ps(reciprocal[group_of[i]]));
        const __m512 cut = _mm512_range_ps(quotient, largest, 0x0a); /* the smaller magnitude, as positive */
        const __m512i field = _mm512_srli_epi32(_mm512_max_epi32(_mm512_castps_si512(cut), least), 23);
        const __m512 add =
            type.bits == 8 ? _mm512_permutex2var_ps(addend, field, addend16) : _mm512_permutexvar_ps(field, addend);
        __m512i sum;
        if (is_exact(mode)) {
            sum = _mm512_castps_si512(_mm512_add_ps(cut, add));
        } else { /* the same code from a little less and a little more: no midpoint between */
            sum = _mm512_castps_si512(_mm512_fmadd_ps(cut, _mm512_set1_ps(1 - HC_QUOTIENT_ERROR), add));
            const __m512 more = _mm512_fmadd_ps(cut, _mm512_set1_ps(1 + HC_QUOTIENT_ERROR), add);
            apart = _mm512_ternarylogic_epi32(apart, sum, _mm512_castps_si512(more), 0xf6); /* apart | (sum ^ more) */
        }
        const __m512i sign = _mm512_srli_epi32(_mm512_castps_si512(quotient), 32 - type.bits);
        unit[i] = _mm512_ternarylogic_epi32(magnitude, sum, sign, 0xca); /* sum where magnitude has ones, else sign */
    }
    const __m512i lanes = _mm512_setr_epi32(0, 4, 8, 12, 1, 5, 9, 13, 2, 6, 10, 14, 3, 7, 11, 15);
    const __m512i bytes =
        _mm512_packus_epi16(_mm512_packus_epi32(unit[0], unit[1]), _mm512_packus_epi32(unit[2], unit[3]));
    _mm512_storeu_si512(codes, _mm512_permutexvar_epi32(lanes, bytes));
    return is_exact(mode) || _mm512_test_epi32_mask(apart, apart) == 0;
}

/* Codes of levels, four units as line_codes. */
static inline __attribute__((always_inline)) bool
line_levels(const float *x, const uint8_t *group_of, const float *reciprocal, const float *levels, uint8_t *codes) {
    const __m512 low = _mm512_loadu_ps(levels), high = _mm512_loadu_ps(levels + 16), one = _mm512_set1_ps(1);
    __m512 nearest = one;
    __m512i unit[4];
#pragma GCC unroll 4
    for (int i = 0; i < 4; i++) {
        __m512 quotient = _mm512_mul_ps(_mm512_loadu_ps(x + i * 16), _mm512_set1_ps(reciprocal[group_of[i]]));
        quotient = _mm512_range_ps(quotient, one, 0x02); /* the smaller magnitude, with the sign of the first */
        /* adding 1.5 * 2^23 rounds to an integer, in the low bits of the sum */
        const __m512 step = _mm512_fmadd_ps(quotient, _mm512_set1_ps(HC_LEVEL_STEPS), _mm512_set1_ps(0x1.8p23f));
        const __m512 midpoint = _mm512_permutex2var_ps(low, _mm512_castps_si512(step), high);
        const __m512 below = _mm512_sub_ps(midpoint, quotient);
        nearest = _mm512_range_ps(nearest, below, 0x0a); /* the smaller magnitude, as positive */
        unit[i] = _mm512_add_epi32(_mm512_and_si512(_mm512_castps_si512(midpoint), _mm512_set1_epi32(15)),
                                   _mm512_srli_epi32(_mm512_castps_si512(below), 31));
    }
    const __m512i lanes = _mm512_setr_epi32(0, 4, 8, 12, 1, 5, 9, 13, 2, 6, 10, 14, 3, 7, 11, 15);
    const __m512i bytes =
        _mm512_packus_epi16(_mm512_packus_epi32(unit[0], unit[1]), _mm512_packus_epi32(unit[2], unit[3]));
    _mm512_storeu_si512(codes, _mm512_permutexvar_epi32(lanes, bytes));
    return _mm512_cmp_ps_mask(nearest, _mm512_set1_ps(HC_LEVEL_ERROR), _CMP_LE_OQ) == 0;
}

#endif
