/* Primitives of AVX2 that convert values to codes. A unit is two registers.
 *
 * Small floats: adding 2^(e + 23 - m) to a magnitude with exponent e (at least the smallest normal one) rounds it to m
 * bits, RNE, in the low bits of the sum. The addend also has the code of 2^e in these bits, so the low bits of the sum
 * are the code.
 */
#ifndef HC_SIMD_AVX2_ENCODE_H
#define HC_SIMD_AVX2_ENCODE_H

#include "formats/simd/codes.h"
#include "formats/simd/x86.h"

#include <string.h>

/* 4 float64 rounded to odd: to nearest, then cut if the magnitude grew, and the last bit 1 if the value changed. */
static inline __m128 odd_f32x4(const double *x) {
    const __m256d value = _mm256_loadu_pd(x), sign = _mm256_set1_pd(-0.0);
    const __m128 nearest = _mm256_cvtpd_ps(value);
    const __m256d back = _mm256_cvtps_pd(nearest);
    const __m256i grew =
        _mm256_castpd_si256(_mm256_cmp_pd(_mm256_andnot_pd(sign, back), _mm256_andnot_pd(sign, value), _CMP_GT_OQ));
    const __m256i inexact = _mm256_srli_epi64(_mm256_castpd_si256(_mm256_cmp_pd(back, value, _CMP_NEQ_OQ)), 63);
    const __m256i low = _mm256_setr_epi32(0, 2, 4, 6, 0, 2, 4, 6); /* the low half of each comparison */
    const __m128i less = _mm256_castsi256_si128(_mm256_permutevar8x32_epi32(grew, low));
    const __m128i odd = _mm256_castsi256_si128(_mm256_permutevar8x32_epi32(inexact, low));
    return _mm_castsi128_ps(_mm_or_si128(_mm_add_epi32(_mm_castps_si128(nearest), less), odd));
}

/* One unit of float64 as float32, rounded to odd. */
static inline void simd_odd(const double *x, float *out) {
    for (int i = 0; i < 16; i += 4)
        _mm_storeu_ps(out + i, odd_f32x4(x + i));
}

/* The bits of |x|, max(x, 0) or max(-x, 0): magnitudes compare as integers. */
static inline __m256i magnitude_i32x8(__m256i x, int which) {
    if (which == HC_ABSOLUTE)
        return _mm256_and_si256(x, _mm256_set1_epi32(0x7fffffff));
    if (which == HC_NEGATIVE)
        x = _mm256_xor_si256(x, _mm256_set1_epi32(INT32_MIN));
    return _mm256_max_epi32(x, _mm256_setzero_si256());
}

static inline __m256i load_i32x8(const float *x) { return _mm256_loadu_si256((const __m256i *)x); }

/* Lane i of the result is the largest lane of v[i]. */
static inline __m256i transposed_max(const __m256i v[8]) {
    __m256i pair[4], quad[2];
#pragma GCC unroll 4
    for (int i = 0; i < 4; i++)
        pair[i] = _mm256_max_epi32(_mm256_unpacklo_epi32(v[2 * i], v[2 * i + 1]),
                                   _mm256_unpackhi_epi32(v[2 * i], v[2 * i + 1]));
#pragma GCC unroll 2
    for (int i = 0; i < 2; i++)
        quad[i] = _mm256_max_epi32(_mm256_unpacklo_epi64(pair[2 * i], pair[2 * i + 1]),
                                   _mm256_unpackhi_epi64(pair[2 * i], pair[2 * i + 1]));
    return _mm256_max_epi32(_mm256_permute2x128_si256(quad[0], quad[1], 0x20),
                            _mm256_permute2x128_si256(quad[0], quad[1], 0x31));
}

/* Largest magnitude of each of n_groups groups of units * 16 values; then zeros to a multiple of 16. */
static inline __attribute__((always_inline)) void simd_maxima(const float *x, int64_t n_groups, int64_t units,
                                                              int which, float *maxima) {
    for (int64_t first = 0; first < hc_round_up(n_groups, 16); first += 8) {
        __m256i group_i32x8[8];
        const float *from = x + first * units * 16;
        const int64_t present = n_groups - first;
#pragma GCC unroll 8
        for (int i = 0; i < 8; i++) {
            group_i32x8[i] = _mm256_setzero_si256();
            for (int64_t unit = 0; unit < units && i < present; unit++) {
                const float *here = from + (i * units + unit) * 16;
                group_i32x8[i] = _mm256_max_epi32(group_i32x8[i], magnitude_i32x8(load_i32x8(here), which));
                group_i32x8[i] = _mm256_max_epi32(group_i32x8[i], magnitude_i32x8(load_i32x8(here + 8), which));
            }
        }
        _mm256_storeu_si256((__m256i *)(maxima + first), transposed_max(group_i32x8));
    }
}

/* Largest magnitude of n values. */
static inline float simd_maximum(const float *x, int64_t n, int which) {
    __m256i even = _mm256_setzero_si256(), odd = even;
    int64_t i = 0;
    for (; i + 16 <= n; i += 16) {
        even = _mm256_max_epi32(even, magnitude_i32x8(load_i32x8(x + i), which));
        odd = _mm256_max_epi32(odd, magnitude_i32x8(load_i32x8(x + i + 8), which));
    }
    float lane[16] = {0};
    memcpy(lane, x + i, (size_t)(n - i) * sizeof *lane);
    even = _mm256_max_epi32(even, magnitude_i32x8(load_i32x8(lane), which));
    odd = _mm256_max_epi32(odd, magnitude_i32x8(load_i32x8(lane + 8), which));
    const __m256i both = _mm256_max_epi32(even, odd);
    __m128i four = _mm_max_epi32(_mm256_castsi256_si128(both), _mm256_extracti128_si256(both, 1));
    four = _mm_max_epi32(four, _mm_shuffle_epi32(four, 0x4e));
    return _mm_cvtss_f32(_mm_castsi128_ps(_mm_max_epi32(four, _mm_shuffle_epi32(four, 0xb1))));
}

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
    } else { /* a slightly smaller and a slightly larger quotient have the same code: no midpoint is between them */
        sum = _mm256_castps_si256(_mm256_fmadd_ps(cut, _mm256_set1_ps(1 - HC_QUOTIENT_ERROR), add));
        const __m256 more = _mm256_fmadd_ps(cut, _mm256_set1_ps(1 + HC_QUOTIENT_ERROR), add);
        *apart = _mm256_or_si256(*apart, _mm256_xor_si256(sum, _mm256_castps_si256(more)));
    }
    const __m256i sign = _mm256_srli_epi32(_mm256_castps_si256(quotient), 32 - type.bits);
    const __m256i magnitude = _mm256_set1_epi32((1 << (type.bits - 1)) - 1);
    return _mm256_or_si256(_mm256_and_si256(sum, magnitude), _mm256_andnot_si256(magnitude, sign));
}

/* Four units like simd_codes: false if a quotient is near a midpoint. */
static inline __attribute__((always_inline)) bool simd_floats(const float *x, const uint8_t *group_of,
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

/* Codes of levels, four units as simd_codes. */
static inline __attribute__((always_inline)) bool
simd_levels(const float *x, const uint8_t *group_of, const float *reciprocal, const float *levels, uint8_t *codes) {
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

/* Codes of 8 values by the reciprocal, as int32; `worst` collects the largest distance to an integer. */
static inline __m256i half_codes(const float *x, __m256 reciprocal, hc_code_mode mode, __m256 *worst) {
    __m256 quotient = _mm256_mul_ps(_mm256_loadu_ps(x), reciprocal);
    if (mode != HC_CODES_PLAIN)
        quotient = _mm256_min_ps(quotient, _mm256_set1_ps(1024.0f));
    const __m256i code = _mm256_cvtps_epi32(quotient);
    const __m256 distance = _mm256_sub_ps(quotient, _mm256_cvtepi32_ps(code));
    *worst = _mm256_max_ps(*worst, _mm256_andnot_ps(_mm256_set1_ps(-0.0f), distance));
    return code;
}

/* Codes of one unit as int16, the quarters of the two halves interleaved. */
static inline __m256i unit_codes(const float *x, float reciprocal, int32_t zero, const hc_code_range *range,
                                 hc_code_mode mode, __m256 *worst) {
    const __m256 reciprocal_f32x8 = _mm256_set1_ps(reciprocal);
    const __m256i low = half_codes(x, reciprocal_f32x8, mode, worst);
    const __m256i high = half_codes(x + 8, reciprocal_f32x8, mode, worst);
    __m256i code = _mm256_packs_epi32(low, high);
    if (mode == HC_CODES_SHIFTED)
        code = _mm256_add_epi16(code, _mm256_set1_epi16((short)zero));
    if (mode != HC_CODES_PLAIN)
        code = _mm256_min_epi16(_mm256_max_epi16(code, _mm256_set1_epi16((short)range->low)),
                                _mm256_set1_epi16((short)range->high));
    return code;
}

/* Encodes four units; false if a quotient is near a midpoint, so that the codes must be computed again by division. */
static inline __attribute__((always_inline)) bool simd_codes(const float *x, const uint8_t *group_of,
                                                             const float *reciprocal, const int32_t *zero,
                                                             const hc_code_range *range, float near, hc_code_mode mode,
                                                             uint8_t *codes) {
    if (is_small_float(mode))
        return simd_floats(x, group_of, reciprocal, range->limit, mode, codes);
    if (mode == HC_CODES_LEVELS)
        return simd_levels(x, group_of, reciprocal, range->levels, codes);
    const __m256i lanes = _mm256_setr_epi32(0, 4, 1, 5, 2, 6, 3, 7);
    const bool is_signed = mode == HC_CODES_PLAIN || mode == HC_CODES_SIGNED;
    __m256 worst = _mm256_setzero_ps();
#pragma GCC unroll 2
    for (int i = 0; i < 4; i += 2) {
        const int even = group_of[i], odd = group_of[i + 1];
        const __m256i low =
            unit_codes(x + i * 16, reciprocal[even], mode == HC_CODES_SHIFTED ? zero[even] : 0, range, mode, &worst);
        const __m256i high =
            unit_codes(x + i * 16 + 16, reciprocal[odd], mode == HC_CODES_SHIFTED ? zero[odd] : 0, range, mode, &worst);
        const __m256i bytes = is_signed ? _mm256_packs_epi16(low, high) : _mm256_packus_epi16(low, high);
        _mm256_storeu_si256((__m256i *)(codes + i * 16), _mm256_permutevar8x32_epi32(bytes, lanes));
    }
    return _mm256_movemask_ps(_mm256_cmp_ps(worst, _mm256_set1_ps(near), _CMP_GT_OQ)) == 0;
}

/* Exact codes of 8 values: the remainder x - k * s is exact, and shows on which side of the midpoint x is. */
static inline __m256i corrected_i32x8(__m256 value, __m256 scale, float reciprocal) {
    const __m256 bound = _mm256_set1_ps(1024.0f), none = _mm256_setzero_ps();
    const __m256i one = _mm256_set1_epi32(1);
    __m256 quotient = _mm256_min_ps(_mm256_mul_ps(value, _mm256_set1_ps(reciprocal)), bound);
    quotient = _mm256_max_ps(quotient, _mm256_sub_ps(none, bound));
    const __m256i code = _mm256_cvtps_epi32(quotient);
    const __m256 remainder = _mm256_fnmadd_ps(_mm256_cvtepi32_ps(code), scale, value);
    const __m256 twice = _mm256_andnot_ps(_mm256_set1_ps(-0.0f), _mm256_add_ps(remainder, remainder));
    const __m256i odd = _mm256_cmpeq_epi32(_mm256_and_si256(code, one), one);
    const __m256 tie = _mm256_and_ps(_mm256_cmp_ps(twice, scale, _CMP_EQ_OQ), _mm256_castsi256_ps(odd));
    __m256 off = _mm256_or_ps(_mm256_cmp_ps(twice, scale, _CMP_GT_OQ), tie);
    off = _mm256_and_ps(off, _mm256_cmp_ps(scale, none, _CMP_GT_OQ));
    /* all ones is -1: adding it decrements, subtracting it increments */
    const __m256i down = _mm256_castps_si256(_mm256_and_ps(off, _mm256_cmp_ps(remainder, none, _CMP_LE_OQ)));
    const __m256i up = _mm256_castps_si256(_mm256_and_ps(off, _mm256_cmp_ps(remainder, none, _CMP_GT_OQ)));
    return _mm256_sub_epi32(_mm256_add_epi32(code, down), up);
}

static inline void simd_corrected(const float *x, float scale, float reciprocal, int32_t zero,
                                  const hc_code_range *range, uint8_t *codes) {
    const __m256 scale_f32x8 = _mm256_set1_ps(scale);
    __m256i code = _mm256_packs_epi32(corrected_i32x8(_mm256_loadu_ps(x), scale_f32x8, reciprocal),
                                      corrected_i32x8(_mm256_loadu_ps(x + 8), scale_f32x8, reciprocal));
    code = _mm256_add_epi16(_mm256_permute4x64_epi64(code, 0xd8), _mm256_set1_epi16((short)zero));
    code = _mm256_min_epi16(_mm256_max_epi16(code, _mm256_set1_epi16((short)range->low)),
                            _mm256_set1_epi16((short)range->high));
    const __m256i bytes = _mm256_and_si256(code, _mm256_set1_epi16(0xff));
    _mm_storeu_si128((__m128i *)codes,
                     _mm_packus_epi16(_mm256_castsi256_si128(bytes), _mm256_extracti128_si256(bytes, 1)));
}

/* 64 codes in bytes -> 32 bytes. */
static inline void pack4_bytes(const uint8_t *codes, uint8_t *out) {
    const __m256i nibble = _mm256_set1_epi8(15), weights = _mm256_set1_epi16(0x1001);
    const __m256i low = _mm256_and_si256(_mm256_loadu_si256((const __m256i *)codes), nibble);
    const __m256i high = _mm256_and_si256(_mm256_loadu_si256((const __m256i *)(codes + 32)), nibble);
    const __m256i both = _mm256_packus_epi16(_mm256_maddubs_epi16(low, weights), _mm256_maddubs_epi16(high, weights));
    _mm256_storeu_si256((__m256i *)out, _mm256_permute4x64_epi64(both, 0xd8));
}

/* n codes in bytes -> 4 bits each. */
static inline void simd_pack4(const uint8_t *codes, int64_t n, uint8_t *out) {
    int64_t i = 0;
    for (; i + 64 <= n; i += 64)
        pack4_bytes(codes + i, out + i / 2);
    if (i < n) {
        uint8_t last[64] = {0}, packed[32];
        memcpy(last, codes + i, (size_t)(n - i));
        pack4_bytes(last, packed);
        memcpy(out + i / 2, packed, (size_t)(n - i + 1) / 2);
    }
}

/* Codes of 64 quotients by buckets (formats/own/search.h). False: a quotient is as near to its bound as doubt * bound, is
 * infinite or NaN. doubt may be 0. */
static inline __attribute__((always_inline)) __m256i search_i32x8(const float *x, const float *bounds,
                                                                  const uint32_t *pairs, int32_t n, int shift,
                                                                  int32_t base, float doubt, __m256i *unsure) {
    const __m256 sign = _mm256_set1_ps(-0.0f), quotient = _mm256_loadu_ps(x);
    const __m256 magnitude = _mm256_andnot_ps(sign, quotient);
    const __m256i bits = _mm256_castps_si256(magnitude);
    const __m256i negative = _mm256_srai_epi32(_mm256_castps_si256(quotient), 31);
    __m256i at = _mm256_sub_epi32(_mm256_srl_epi32(bits, _mm_cvtsi32_si128(shift)), _mm256_set1_epi32(base));
    at = _mm256_min_epi32(_mm256_max_epi32(at, _mm256_setzero_si256()), _mm256_set1_epi32(n - 1));
    at = _mm256_add_epi32(at, _mm256_and_si256(negative, _mm256_set1_epi32(n)));
    const __m256 bound = _mm256_i32gather_ps(bounds, at, 4);
    const __m256i pair = _mm256_i32gather_epi32((const int *)pairs, at, 4);
    const __m256i above = _mm256_castps_si256(_mm256_cmp_ps(magnitude, bound, _CMP_GT_OQ));
    const __m256 apart = _mm256_andnot_ps(sign, _mm256_sub_ps(magnitude, bound));
    const __m256 near = _mm256_cmp_ps(apart, _mm256_mul_ps(bound, _mm256_set1_ps(doubt)), _CMP_LT_OQ);
    *unsure = _mm256_or_si256(
        *unsure, _mm256_or_si256(_mm256_castps_si256(near), _mm256_cmpgt_epi32(bits, _mm256_set1_epi32(0x7e7fffff))));
    return _mm256_and_si256(_mm256_srlv_epi32(pair, _mm256_and_si256(above, _mm256_set1_epi32(8))),
                            _mm256_set1_epi32(255));
}

static inline __attribute__((always_inline)) bool simd_search(const float *x, const float *bounds,
                                                              const uint32_t *pairs, int32_t n, int shift, int32_t base,
                                                              float doubt, uint8_t *codes) {
    const __m256i lanes = _mm256_setr_epi32(0, 4, 1, 5, 2, 6, 3, 7);
    __m256i unsure = _mm256_setzero_si256();
#pragma GCC unroll 2
    for (int i = 0; i < 64; i += 32) {
        __m256i code[4];
#pragma GCC unroll 4
        for (int j = 0; j < 4; j++)
            code[j] = search_i32x8(x + i + 8 * j, bounds, pairs, n, shift, base, doubt, &unsure);
        const __m256i low = _mm256_packus_epi32(code[0], code[1]), high = _mm256_packus_epi32(code[2], code[3]);
        const __m256i bytes = _mm256_packus_epi16(low, high);
        _mm256_storeu_si256((__m256i *)(void *)(codes + i), _mm256_permutevar8x32_epi32(bytes, lanes));
    }
    return _mm256_testz_si256(unsure, unsure);
}

#endif
