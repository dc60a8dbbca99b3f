/* Primitives of AVX-512 that convert values to codes. A unit is one register.
 *
 * Small floats: adding 2^(e + 23 - m) to a magnitude with exponent e (at least the smallest normal one) rounds it to m
 * bits, RNE, in the low bits of the sum. The addend also has the code of 2^e in these bits, so the low bits of the sum
 * are the code.
 */
#ifndef HC_SIMD_AVX512_ENCODE_H
#define HC_SIMD_AVX512_ENCODE_H

#include "formats/simd/codes.h"
#include "formats/simd/x86.h"

/* 8 float64 rounded to odd: cut, and the last bit 1 if that was not exact. The comparison is false for NaN. */
static inline __m256 odd_f32x8(const double *x) {
    const __m512d value = _mm512_loadu_pd(x);
    const __m256 cut = _mm512_cvt_roundpd_ps(value, _MM_FROUND_TO_ZERO | _MM_FROUND_NO_EXC);
    const __mmask8 inexact = _mm512_cmp_pd_mask(_mm512_cvtps_pd(cut), value, _CMP_NEQ_OQ);
    const __m256i bits = _mm256_castps_si256(cut);
    return _mm256_castsi256_ps(_mm256_mask_or_epi32(bits, inexact, bits, _mm256_set1_epi32(1)));
}

/* One unit of float64 as float32, rounded to odd. */
static inline void simd_odd(const double *x, float *out) {
    _mm256_storeu_ps(out, odd_f32x8(x));
    _mm256_storeu_ps(out + 8, odd_f32x8(x + 8));
}

/* The bits of |x|, max(x, 0) or max(-x, 0): magnitudes compare as integers. */
static inline __m512i magnitude_i32x16(__m512i x, int which) {
    if (which == HC_ABSOLUTE)
        return _mm512_and_si512(x, _mm512_set1_epi32(0x7fffffff));
    if (which == HC_NEGATIVE)
        x = _mm512_xor_si512(x, _mm512_set1_epi32(INT32_MIN));
    return _mm512_max_epi32(x, _mm512_setzero_si512());
}

static inline __m512i max_of_halves(__m512i low, __m512i high) { return _mm512_max_epi32(low, high); }

/* Lane i of the result is the largest lane of v[i]. */
static inline __m512i transposed_max(const __m512i v[16]) {
    __m512i pair[8], quad[4];
#pragma GCC unroll 8
    for (int i = 0; i < 8; i++)
        pair[i] =
            max_of_halves(_mm512_unpacklo_epi32(v[2 * i], v[2 * i + 1]), _mm512_unpackhi_epi32(v[2 * i], v[2 * i + 1]));
#pragma GCC unroll 4
    for (int i = 0; i < 4; i++)
        quad[i] = max_of_halves(_mm512_unpacklo_epi64(pair[2 * i], pair[2 * i + 1]),
                                _mm512_unpackhi_epi64(pair[2 * i], pair[2 * i + 1]));
    const __m512i low =
        max_of_halves(_mm512_shuffle_i32x4(quad[0], quad[1], 0x88), _mm512_shuffle_i32x4(quad[0], quad[1], 0xdd));
    const __m512i high =
        max_of_halves(_mm512_shuffle_i32x4(quad[2], quad[3], 0x88), _mm512_shuffle_i32x4(quad[2], quad[3], 0xdd));
    return max_of_halves(_mm512_shuffle_i32x4(low, high, 0x88), _mm512_shuffle_i32x4(low, high, 0xdd));
}

/* 16 groups, of which the first n are stored. */
static inline __attribute__((always_inline)) void sixteen_maxima(const float *from, int64_t n, int64_t units, int which,
                                                                 float *maxima) {
    __m512i group_i32x16[16];
#pragma GCC unroll 16
    for (int i = 0; i < 16; i++) {
        const float *group = from + i * units * 16;
        __m512i largest = _mm512_setzero_si512();
        if (i < n)
            largest = magnitude_i32x16(_mm512_loadu_si512(group), which);
        for (int64_t unit = 1; unit < units && i < n; unit++)
            largest = _mm512_max_epi32(largest, magnitude_i32x16(_mm512_loadu_si512(group + unit * 16), which));
        group_i32x16[i] = largest;
    }
    _mm512_storeu_si512(maxima, transposed_max(group_i32x16));
}

/* Largest magnitude of each of n_groups groups of units * 16 values; then zeros to a multiple of 16. */
static inline __attribute__((always_inline)) void simd_maxima(const float *x, int64_t n_groups, int64_t units,
                                                              int which, float *maxima) {
    for (int64_t first = 0; first < n_groups; first += 16) {
        const float *from = x + first * units * 16;
        if (n_groups - first < 16)
            sixteen_maxima(from, n_groups - first, units, which, maxima + first);
        else if (units == 1)
            sixteen_maxima(from, 16, 1, which, maxima + first);
        else if (units == 2)
            sixteen_maxima(from, 16, 2, which, maxima + first);
        else
            sixteen_maxima(from, 16, units, which, maxima + first);
    }
}

/* Largest magnitude of n values. */
static inline float simd_maximum(const float *x, int64_t n, int which) {
    __m512i even = _mm512_setzero_si512(), odd = even;
    int64_t i = 0;
    for (; i + 32 <= n; i += 32) {
        even = _mm512_max_epi32(even, magnitude_i32x16(_mm512_loadu_si512(x + i), which));
        odd = _mm512_max_epi32(odd, magnitude_i32x16(_mm512_loadu_si512(x + i + 16), which));
    }
    for (; i < n; i += 16) {
        const __mmask16 mask = n - i >= 16 ? 0xffff : (__mmask16)((1u << (n - i)) - 1);
        even = _mm512_max_epi32(even, magnitude_i32x16(_mm512_maskz_loadu_epi32(mask, x + i), which));
    }
    const int32_t bits = _mm512_reduce_max_epi32(_mm512_max_epi32(even, odd));
    return _mm_cvtss_f32(_mm_castsi128_ps(_mm_cvtsi32_si128(bits)));
}

/* The addend for exponent fields whose last five bits are those of first .. first + 15. */
static inline __attribute__((always_inline)) __m512 addends(const hc_small_float *type, int first) {
    const __m512i lane = _mm512_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15);
    const __m512i index = _mm512_add_epi32(lane, _mm512_set1_epi32(first - type->least));
    const __m512i above = _mm512_and_si512(index, _mm512_set1_epi32(type->bits == 8 ? 31 : 15));
    const __m512i field = _mm512_add_epi32(above, _mm512_set1_epi32(type->least + 23 - type->fraction_bits));
    return _mm512_castsi512_ps(
        _mm512_or_si512(_mm512_slli_epi32(field, 23), _mm512_slli_epi32(above, type->fraction_bits)));
}

/* Four units like simd_codes: false if a quotient is near a midpoint. */
static inline __attribute__((always_inline)) bool simd_floats(const float *x, const uint8_t *group_of,
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
        } else { /* a slightly smaller and a slightly larger quotient have the same code: no midpoint is between them */
            sum = _mm512_castps_si512(_mm512_fmadd_ps(cut, _mm512_set1_ps(1 - HC_QUOTIENT_ERROR), add));
            const __m512 more = _mm512_fmadd_ps(cut, _mm512_set1_ps(1 + HC_QUOTIENT_ERROR), add);
            apart = _mm512_ternarylogic_epi32(apart, sum, _mm512_castps_si512(more), 0xf6); /* apart | (sum ^ more) */
        }
        const __m512i sign = _mm512_srli_epi32(_mm512_castps_si512(quotient), 32 - type.bits);
        unit[i] =
            _mm512_ternarylogic_epi32(magnitude, sum, sign, 0xca); /* the magnitude bits of sum, the rest of sign */
    }
    const __m512i lanes = _mm512_setr_epi32(0, 4, 8, 12, 1, 5, 9, 13, 2, 6, 10, 14, 3, 7, 11, 15);
    const __m512i bytes =
        _mm512_packus_epi16(_mm512_packus_epi32(unit[0], unit[1]), _mm512_packus_epi32(unit[2], unit[3]));
    _mm512_storeu_si512(codes, _mm512_permutexvar_epi32(lanes, bytes));
    return is_exact(mode) || _mm512_test_epi32_mask(apart, apart) == 0;
}

/* Codes of levels, four units as simd_codes. */
static inline __attribute__((always_inline)) bool
simd_levels(const float *x, const uint8_t *group_of, const float *reciprocal, const float *levels, uint8_t *codes) {
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

/* Codes of one unit by the reciprocal; `worst` collects the largest distance to an integer. */
static inline __attribute__((always_inline)) __m512i unit_codes(const float *x, float reciprocal, int32_t zero,
                                                                const hc_code_range *range, hc_code_mode mode,
                                                                __m512 *worst) {
    const __m512 value = _mm512_loadu_ps(x), reciprocal_f32x16 = _mm512_set1_ps(reciprocal);
    if (mode == HC_CODES_PLAIN) { /* adding 1.5 * 2^23 rounds to an integer, in the low bits of the sum */
        const __m512 magic = _mm512_set1_ps(0x1.8p23f);
        const __m512 sum = _mm512_fmadd_ps(value, reciprocal_f32x16, magic);
        const __m512 apart = _mm512_fmsub_ps(value, reciprocal_f32x16, _mm512_sub_ps(sum, magic));
        *worst = _mm512_range_ps(*worst, apart, 0x0b); /* the larger magnitude, as positive */
        return _mm512_sub_epi32(_mm512_castps_si512(sum), _mm512_castps_si512(magic));
    }
    const __m512 quotient = _mm512_min_ps(_mm512_mul_ps(value, reciprocal_f32x16), _mm512_set1_ps(1024.0f));
    __m512i code = _mm512_cvtps_epi32(quotient);
    const __m512 apart = _mm512_sub_ps(quotient, _mm512_cvtepi32_ps(code));
    *worst = _mm512_range_ps(*worst, apart, 0x0b);
    if (mode == HC_CODES_SHIFTED)
        code = _mm512_add_epi32(code, _mm512_set1_epi32(zero));
    return _mm512_min_epi32(_mm512_max_epi32(code, _mm512_set1_epi32(range->low)), _mm512_set1_epi32(range->high));
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
    const __m512i lanes = _mm512_setr_epi32(0, 4, 8, 12, 1, 5, 9, 13, 2, 6, 10, 14, 3, 7, 11, 15);
    __m512 worst = _mm512_setzero_ps();
    __m512i unit[4];
#pragma GCC unroll 4
    for (int i = 0; i < 4; i++)
        unit[i] = unit_codes(x + i * 16, reciprocal[group_of[i]], mode == HC_CODES_SHIFTED ? zero[group_of[i]] : 0,
                             range, mode, &worst);
    const __m512i low = _mm512_packs_epi32(unit[0], unit[1]), high = _mm512_packs_epi32(unit[2], unit[3]);
    const bool is_signed = mode == HC_CODES_PLAIN || mode == HC_CODES_SIGNED;
    const __m512i bytes = is_signed ? _mm512_packs_epi16(low, high) : _mm512_packus_epi16(low, high);
    _mm512_storeu_si512(codes, _mm512_permutexvar_epi32(lanes, bytes));
    return _mm512_cmp_ps_mask(worst, _mm512_set1_ps(near), _CMP_GT_OQ) == 0;
}

/* Exact codes of one unit: the remainder x - k * s is exact, and shows on which side of the midpoint x is. */
static inline void simd_corrected(const float *x, float scale, float reciprocal, int32_t zero,
                                  const hc_code_range *range, uint8_t *codes) {
    const __m512 value = _mm512_loadu_ps(x), scale_f32x16 = _mm512_set1_ps(scale), bound = _mm512_set1_ps(1024.0f);
    const __m512i one = _mm512_set1_epi32(1);
    __m512 quotient = _mm512_min_ps(_mm512_mul_ps(value, _mm512_set1_ps(reciprocal)), bound);
    quotient = _mm512_max_ps(quotient, _mm512_sub_ps(_mm512_setzero_ps(), bound));
    __m512i code = _mm512_cvtps_epi32(quotient);
    const __m512 remainder = _mm512_fnmadd_ps(_mm512_cvtepi32_ps(code), scale_f32x16, value);
    const __m512 twice = _mm512_abs_ps(_mm512_add_ps(remainder, remainder));
    const __mmask16 tie = _mm512_cmp_ps_mask(twice, scale_f32x16, _CMP_EQ_OQ) & _mm512_test_epi32_mask(code, one);
    const __mmask16 off = scale > 0 ? _mm512_cmp_ps_mask(twice, scale_f32x16, _CMP_GT_OQ) | tie : 0;
    const __mmask16 up = _mm512_cmp_ps_mask(remainder, _mm512_setzero_ps(), _CMP_GT_OQ);
    code = _mm512_mask_add_epi32(code, off & up, code, one);
    code = _mm512_mask_sub_epi32(code, off & ~up, code, one);
    code = _mm512_add_epi32(code, _mm512_set1_epi32(zero));
    code = _mm512_min_epi32(_mm512_max_epi32(code, _mm512_set1_epi32(range->low)), _mm512_set1_epi32(range->high));
    _mm_storeu_si128((__m128i *)codes, _mm512_cvtepi32_epi8(code));
}

static inline __m256i pack4_bytes(__m512i codes) {
    const __m512i low = _mm512_and_si512(codes, _mm512_set1_epi8(15));
    return _mm512_cvtepi16_epi8(_mm512_maddubs_epi16(low, _mm512_set1_epi16(0x1001)));
}

/* n codes in bytes -> 4 bits each. */
static inline void simd_pack4(const uint8_t *codes, int64_t n, uint8_t *out) {
    int64_t i = 0;
    for (; i + 64 <= n; i += 64)
        _mm256_storeu_si256((__m256i *)(out + i / 2), pack4_bytes(_mm512_loadu_si512(codes + i)));
    if (i < n) {
        const __m512i last = _mm512_maskz_loadu_epi8(((__mmask64)1 << (n - i)) - 1, codes + i);
        _mm256_mask_storeu_epi8(out + i / 2, (__mmask32)(((uint64_t)1 << ((n - i + 1) / 2)) - 1), pack4_bytes(last));
    }
}

/* Codes of 64 quotients by buckets (formats/own/search.h). False: a quotient is as near to its bound as doubt * bound, is
 * infinite or NaN. doubt may be 0. */
static inline __attribute__((always_inline)) bool simd_search(const float *x, const float *bounds,
                                                              const uint32_t *pairs, int32_t n, int shift, int32_t base,
                                                              float doubt, uint8_t *codes) {
    __mmask16 unsure = 0;
#pragma GCC unroll 4
    for (int i = 0; i < 64; i += 16) {
        const __m512 quotient = _mm512_loadu_ps(x + i), magnitude = _mm512_abs_ps(quotient);
        const __m512i bits = _mm512_castps_si512(magnitude);
        const __mmask16 negative = _mm512_movepi32_mask(_mm512_castps_si512(quotient));
        __m512i at = _mm512_sub_epi32(_mm512_srl_epi32(bits, _mm_cvtsi32_si128(shift)), _mm512_set1_epi32(base));
        at = _mm512_min_epi32(_mm512_max_epi32(at, _mm512_setzero_si512()), _mm512_set1_epi32(n - 1));
        at = _mm512_mask_add_epi32(at, negative, at, _mm512_set1_epi32(n));
        const __m512 bound = _mm512_i32gather_ps(at, bounds, 4);
        const __m512i pair = _mm512_i32gather_epi32(at, pairs, 4);
        const __mmask16 above = _mm512_cmp_ps_mask(magnitude, bound, _CMP_GT_OQ);
        const __m512 apart = _mm512_abs_ps(_mm512_sub_ps(magnitude, bound));
        unsure |= _mm512_cmp_ps_mask(apart, _mm512_mul_ps(bound, _mm512_set1_ps(doubt)), _CMP_LT_OQ);
        unsure |= _mm512_cmpgt_epi32_mask(bits, _mm512_set1_epi32(0x7e7fffff));
        const __m512i code = _mm512_mask_srli_epi32(pair, above, pair, 8);
        _mm_storeu_si128((__m128i *)(void *)(codes + i), _mm512_cvtepi32_epi8(code));
    }
    return unsure == 0;
}

#endif
