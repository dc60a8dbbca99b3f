/* The primitives of formats/simd for AVX-512. A unit is one register.
 *
 * Small floats: adding 2^(e + 23 - m) to a magnitude with exponent e (at least the smallest normal one) rounds it to m
 * bits, RNE, and leaves them low in the sum. What is added has the code of 2^e in these bits too, so that the sum ends in
 * the code.
 */
#ifndef HC_SIMD_AVX512_H
#define HC_SIMD_AVX512_H

#include "formats/simd/codes.h"
#include "formats/simd/x86.h"

#include <float.h>
#include <string.h>

#define HC_SIMD_F64 8 /* float64 in a register */

/* --- encoding --- */

/* The bits of |x|, max(x, 0) or max(-x, 0): magnitudes compare as integers. */
static inline __m512i magnitude_i32x16(__m512i x, int which) {
    if (which == HC_ABSOLUTE)
        return _mm512_and_si512(x, _mm512_set1_epi32(0x7fffffff));
    if (which == HC_NEGATIVE)
        x = _mm512_xor_si512(x, _mm512_set1_epi32(INT32_MIN));
    return _mm512_max_epi32(x, _mm512_setzero_si512());
}

static inline __m512i max_of_halves(__m512i low, __m512i high) { return _mm512_max_epi32(low, high); }

/* Lane i of the answer is the largest lane of v[i]. */
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

/* Of 16 groups, of which n exist. */
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

/* What is added, for exponent fields that end like first .. first + 15 in five bits. */
static inline __attribute__((always_inline)) __m512 addends(const hc_small_float *type, int first) {
    const __m512i lane = _mm512_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15);
    const __m512i index = _mm512_add_epi32(lane, _mm512_set1_epi32(first - type->least));
    const __m512i above = _mm512_and_si512(index, _mm512_set1_epi32(type->bits == 8 ? 31 : 15));
    const __m512i field = _mm512_add_epi32(above, _mm512_set1_epi32(type->least + 23 - type->fraction_bits));
    return _mm512_castsi512_ps(
        _mm512_or_si512(_mm512_slli_epi32(field, 23), _mm512_slli_epi32(above, type->fraction_bits)));
}

/* Four units as simd_codes: false where a quotient is near a midpoint. */
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

/* Codes of one unit by the reciprocal; `worst` gathers the distances to the integers. */
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

/* Four units; false where a quotient is near a midpoint, so that the codes must be made again by division. */
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

/* Codes of one unit that are exact: the remainder x - k * s is, and tells on which side of the midpoint x lies. */
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

/* --- decoding --- */

/* 16 bytes at hc_times4 for the scale in bits [4, 8) of each 16-bit number. */
static inline __m128i times4(uint32_t numbers) {
    return _mm_load_si128((const __m128i *)(const void *)(&hc_times4[0][0] + (numbers & 0xf0)));
}

/* The first multiple of 64 of n codes of 4 bits, as bytes; returns how many. */
static inline int64_t simd_unpack4(const uint8_t *from, int64_t n, bool is_signed, uint8_t *out) {
    const __m512i nibbles = _mm512_set1_epi8(15);
    const __m512i plain = _mm512_broadcast_i32x4(_mm_setr_epi8(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15));
    const __m512i extended = _mm512_broadcast_i32x4(times4(1 << 4)), values = is_signed ? extended : plain;
    int64_t i = 0;
    for (; i + 64 <= n; i += 64) {
        const __m512i pair_u16x32 = _mm512_cvtepu8_epi16(_mm256_loadu_si256((const __m256i *)(from + i / 2)));
        const __m512i code = _mm512_and_si512(_mm512_or_si512(pair_u16x32, _mm512_slli_epi16(pair_u16x32, 4)), nibbles);
        _mm512_storeu_si512(out + i, _mm512_shuffle_epi8(values, code));
    }
    return i;
}

/* The first multiple of 64 of n codes of up to 7 bits, as bytes; returns how many. 16 codes go into each quarter; 4 of them
 * into 32 bits, where odd quads of an odd number of bits begin in the middle of a byte; codes 2 and 3 into the upper half
 * of these, and 1 and 3 into the upper halves of halves. */
static inline int64_t simd_unpack(const uint8_t *from, const uint8_t *end, int64_t n, int bits, bool is_signed,
                                  uint8_t *out) {
    (void)end;
    uint8_t at[16];
    quad_bytes(bits, at);
    const __m512i quads = _mm512_broadcast_i32x4(_mm_loadu_si128((const __m128i *)(const void *)at));
    const __m512i begin = _mm512_set1_epi64((int64_t)(bits % 2) << 34);
    const __m512i place = _mm512_broadcast_i32x4(_mm_setr_epi16(0, 1, 2, 3, 4, 5, 6, 7));
    const __m512i quarter = _mm512_setr_epi64(0, 0, 0x0001000100010001, 0x0001000100010001, 0x0002000200020002,
                                              0x0002000200020002, 0x0003000300030003, 0x0003000300030003);
    const __m512i words = _mm512_add_epi16(place, _mm512_mullo_epi16(quarter, _mm512_set1_epi16((int16_t)bits)));
    const __m128i up = _mm_cvtsi32_si128(16 - 2 * bits), up_byte = _mm_cvtsi32_si128(8 - bits);
    const __m512i pair = _mm512_set1_epi32(0xffff), code = _mm512_set1_epi16(0xff);
    const __m512i mask = _mm512_set1_epi8((int8_t)((1 << bits) - 1));
    const __m512i sign = _mm512_set1_epi8((int8_t)(is_signed ? 1 << (bits - 1) : 0));
    const __mmask64 present = ~(uint64_t)0 >> (64 - 8 * bits);
    int64_t i = 0;
    for (; i + 64 <= n; i += 64, from += 8 * bits) {
        __m512i v = _mm512_permutexvar_epi16(words, _mm512_maskz_loadu_epi8(present, from));
        v = _mm512_srlv_epi32(_mm512_shuffle_epi8(v, quads), begin);
        v = _mm512_ternarylogic_epi32(pair, v, _mm512_sll_epi32(v, up), 0xca); /* v where `pair` has ones */
        v = _mm512_ternarylogic_epi32(code, v, _mm512_sll_epi16(v, up_byte), 0xca);
        v = _mm512_and_si512(v, mask);
        _mm512_storeu_si512(out + i, _mm512_sub_epi8(_mm512_xor_si512(v, sign), sign));
    }
    return i;
}

/* The first multiple of 64 of n codes below 16, by a table; returns how many. */
static inline int64_t simd_lookup16(const uint8_t *codes, int64_t n, const int8_t table[16], int8_t *out) {
    const __m512i values = _mm512_broadcast_i32x4(_mm_loadu_si128((const __m128i *)(const void *)table));
    int64_t i = 0;
    for (; i + 64 <= n; i += 64)
        _mm512_storeu_si512(out + i, _mm512_shuffle_epi8(values, _mm512_loadu_si512(codes + i)));
    return i;
}

static inline __attribute__((always_inline)) void fold4(const uint8_t *codes, const uint8_t *scales, const int group,
                                                        int64_t n, int8_t *out) {
    const int groups = 64 / group;
    const __m512i nibbles = _mm512_set1_epi8(15);
    for (int64_t i = 0; i + 64 <= n; i += 64) {
        uint32_t numbers = 0; /* the scales of four quarters, from bit 4 on */
        if (groups == 4)
            numbers = ((uint32_t)scales[i / 32] | (uint32_t)scales[i / 32 + 1] << 8) << 4;
        else if (groups == 2)
            numbers = (uint32_t)scales[i / 64] << 4;
        else
            numbers = (uint32_t)scales[i / 128] << (i % 128 == 0 ? 4 : 0);
        __m512i table = _mm512_broadcast_i32x4(times4(numbers));
        if (groups == 4)
            table = _mm512_mask_broadcast_i32x4(table, 0x00f0, times4(numbers >> 4));
        if (groups >= 2)
            table = _mm512_mask_broadcast_i32x4(table, 0xff00, times4(numbers >> (groups == 4 ? 8 : 4)));
        if (groups == 4)
            table = _mm512_mask_broadcast_i32x4(table, 0xf000, times4(numbers >> 12));
        const __m512i pair_u16x32 = _mm512_cvtepu8_epi16(_mm256_loadu_si256((const __m256i *)(codes + i / 2)));
        const __m512i code = _mm512_and_si512(_mm512_or_si512(pair_u16x32, _mm512_slli_epi16(pair_u16x32, 4)), nibbles);
        _mm512_storeu_si512(out + i, _mm512_shuffle_epi8(table, code));
    }
}

/* The first multiple of 64 of n signed codes of 4 bits, times their groups' scales of 4 bits, of which the first is the first
 * of a byte; a group holds 16, 32 or 64 codes. Each scale has a table of its products. */
static inline int64_t simd_fold4(const uint8_t *codes, const uint8_t *scales, int64_t group, int64_t n, int8_t *out) {
    if (group == 16)
        fold4(codes, scales, 16, n, out);
    else if (group == 32)
        fold4(codes, scales, 32, n, out);
    else
        fold4(codes, scales, 64, n, out);
    return n / 64 * 64;
}

/* values[j] = real * (integer * (code[j] - zero)), saturated. */
static inline __attribute__((always_inline)) void
simd_values(const uint8_t *codes, int64_t n, bool is_signed, int32_t zero, int32_t integer, float real, float *values) {
    const __m512i zero_i32x16 = _mm512_set1_epi32(zero), integer_i32x16 = _mm512_set1_epi32(integer);
    const __m512 real_f32x16 = _mm512_set1_ps(real), largest = _mm512_set1_ps(FLT_MAX);
    for (int64_t i = 0; i < n; i += 16) {
        const __mmask16 mask = n - i >= 16 ? 0xffff : (__mmask16)((1u << (n - i)) - 1);
        const __m128i byte = _mm_loadu_si128((const __m128i *)(codes + i));
        __m512i code = is_signed ? _mm512_cvtepi8_epi32(byte) : _mm512_cvtepu8_epi32(byte);
        code = _mm512_mullo_epi32(_mm512_sub_epi32(code, zero_i32x16), integer_i32x16);
        /* the second operand of min and max is what a NaN scale leaves */
        const __m512 product = _mm512_min_ps(largest, _mm512_mul_ps(real_f32x16, _mm512_cvtepi32_ps(code)));
        _mm512_mask_storeu_ps(values + i, mask, _mm512_max_ps(_mm512_set1_ps(-FLT_MAX), product));
    }
}

typedef __m512 hc_table16;

static inline hc_table16 load_table16(const float *table) { return _mm512_loadu_ps(table); }

/* 16 products, each rounded once from float64 and saturated. */
static inline hc_table16 scaled_table16(const double *table, double scale) {
    const __m512d factor = _mm512_set1_pd(scale);
    const __m256 low = _mm512_cvtpd_ps(_mm512_mul_pd(factor, _mm512_loadu_pd(table)));
    const __m256 high = _mm512_cvtpd_ps(_mm512_mul_pd(factor, _mm512_loadu_pd(table + 8)));
    const __m512 all = _mm512_insertf32x8(_mm512_castps256_ps512(low), high, 1), most = _mm512_set1_ps(FLT_MAX);
    return _mm512_max_ps(_mm512_set1_ps(-FLT_MAX), _mm512_min_ps(most, all)); /* of a NaN the second stays */
}

/* Elements of 16 codes. */
static inline __attribute__((always_inline)) __m512 elements_f32x16(const uint8_t *codes, hc_element_kind kind,
                                                                    hc_table16 table, const float *large) {
    const __m128i byte = _mm_loadu_si128((const __m128i *)codes);
    if (is_by_16(kind))
        return _mm512_permutexvar_ps(_mm512_cvtepu8_epi32(byte), table);
    if (is_by_256(kind))
        return _mm512_i32gather_ps(_mm512_cvtepu8_epi32(byte), large, 4);
    if (kind == HC_BY_INT8)
        return _mm512_mul_ps(_mm512_cvtepi32_ps(_mm512_cvtepi8_epi32(byte)), _mm512_set1_ps(0x1p-6f));
    const hc_half_form form = half_form(kind);
    const __m256i code = _mm256_cvtepi8_epi16(byte);
    __m256i half = _mm256_and_si256(_mm256_slli_epi16(code, form.shift), _mm256_set1_epi16(form.mask));
    if (form.beyond) { /* one NaN for all */
        const __m256i magnitude = _mm256_and_si256(half, _mm256_set1_epi16(0x7fff));
        const __mmask16 is_nan = _mm256_cmpgt_epi16_mask(magnitude, _mm256_set1_epi16(form.beyond));
        const __m256i nan =
            _mm256_ternarylogic_epi32(half, _mm256_set1_epi16(0x7e00), _mm256_set1_epi16(-0x8000), 0xec);
        half = _mm256_mask_mov_epi16(half, is_nan, nan);
    }
    const __m512 value = _mm512_cvtph_ps(half);
    return kind == HC_BY_E5M2 ? value : _mm512_mul_ps(value, _mm512_set1_ps(form.factor));
}

/* values[j] = element of code[j], times the scale, which saturates what is finite; reads up to 15 codes more. */
static inline __attribute__((always_inline)) void simd_elements(const uint8_t *codes, int64_t n, hc_element_kind kind,
                                                                hc_table16 table, const float *large, bool scaled,
                                                                float scale, float *values) {
    const __m512 largest = _mm512_set1_ps(FLT_MAX);
    for (int64_t i = 0; i < n; i += 16) {
        const __mmask16 mask = n - i >= 16 ? 0xffff : (__mmask16)((1u << (n - i)) - 1);
        const __m512 element = elements_f32x16(codes + i, kind, table, large);
        __m512 value = element;
        if (scaled) {
            const __m512 product = _mm512_mul_ps(_mm512_set1_ps(scale), element);
            /* the second operand of min and max is what a NaN leaves */
            value = _mm512_max_ps(_mm512_set1_ps(-FLT_MAX), _mm512_min_ps(largest, product));
            if (has_no_minus_zero(kind))
                value = _mm512_add_ps(value, _mm512_setzero_ps());
            if (kind == HC_BY_E5M2) /* 0x18: infinities */
                value = _mm512_mask_mov_ps(value, _mm512_fpclass_ps_mask(element, 0x18), product);
        }
        _mm512_mask_storeu_ps(values + i, mask, value);
    }
}

/* Factors of n groups in blocks, 16 at a time, n a multiple of 16: signed integers of 8 bits times a float16 for 16 of them;
 * or, in pairs of a scale and a minimum, unsigned ones of 6 bits times a float16 for 8. The minimum counts as negative.
 * Returns how many, 0 where others are wanted. */
static inline int64_t simd_block_factors(int bits, bool in_pairs, bool is_minimum, const uint8_t *from,
                                         const uint8_t *coarse, int64_t n, float *out) {
    if (bits == 8) {
        for (int64_t i = 0; i < n; i += 16) {
            const __m512i whole = _mm512_cvtepi8_epi32(_mm_loadu_si128((const __m128i *)(from + i)));
            const __m512 d = _mm512_set1_ps(simd_from_half(hc_load_u16(coarse + i / 8)));
            _mm512_storeu_ps(out + i, _mm512_mul_ps(d, _mm512_cvtepi32_ps(whole)));
        }
        return n;
    }
    if (bits != 6 || !in_pairs)
        return 0;
    /* number i has 6 bits from 6 i on: in bytes 6 i / 8 and the next; 16 of them are 12 bytes */
    const __m512i bytes = _mm512_setr_epi32(0x80800100, 0x80800100, 0x80800201, 0x80800302, 0x80800403, 0x80800403,
                                            0x80800504, 0x80800605, 0x80800706, 0x80800706, 0x80800807, 0x80800908,
                                            0x80800a09, 0x80800a09, 0x80800b0a, 0x8080800b);
    const __m512i shifts = _mm512_setr_epi32(0, 6, 4, 2, 0, 6, 4, 2, 0, 6, 4, 2, 0, 6, 4, 2);
    const __m512i first = _mm512_setr_epi32(0, 0, 0, 0, 0, 0, 0, 0, 2, 2, 2, 2, 2, 2, 2, 2);
    const __m512i pair = _mm512_add_epi32(first, _mm512_set1_epi32(is_minimum));
    const __m512 sign = _mm512_set1_ps(is_minimum ? -0.0f : 0.0f);
    for (int64_t i = 0; i < n; i += 16, from += 12) {
        const __m512i stored = _mm512_broadcast_i32x4(_mm_maskz_loadu_epi8(0xfff, from));
        const __m512i whole =
            _mm512_and_si512(_mm512_srlv_epi32(_mm512_shuffle_epi8(stored, bytes), shifts), _mm512_set1_epi32(63));
        const __m128 both = _mm_cvtph_ps(_mm_loadl_epi64((const __m128i *)(coarse + i / 2))); /* d, e, d, e */
        const __m512 d = _mm512_xor_ps(sign, _mm512_permutexvar_ps(pair, _mm512_castps128_ps512(both)));
        _mm512_storeu_ps(out + i, _mm512_mul_ps(d, _mm512_cvtepi32_ps(whole)));
    }
    return n;
}

/* --- several floats as one; formats/lanes.h has one and says what each does --- */

enum { LANES = 16 };
typedef __m512 lanes;
typedef __mmask16 lanes_mask;
static inline lanes lanes_load(const float *from) { return _mm512_loadu_ps(from); }
static inline void lanes_store(float *to, lanes a) { _mm512_storeu_ps(to, a); }
static inline lanes lanes_of(float a) { return _mm512_set1_ps(a); }
static inline lanes lanes_add(lanes a, lanes b) { return _mm512_add_ps(a, b); }
static inline lanes lanes_sub(lanes a, lanes b) { return _mm512_sub_ps(a, b); }
static inline lanes lanes_mul(lanes a, lanes b) { return _mm512_mul_ps(a, b); }
static inline lanes lanes_div(lanes a, lanes b) { return _mm512_div_ps(a, b); }
/* b where either is NaN */
static inline lanes lanes_min(lanes a, lanes b) { return _mm512_min_ps(a, b); }
static inline lanes lanes_max(lanes a, lanes b) { return _mm512_max_ps(a, b); }
static inline lanes lanes_abs(lanes a) { return _mm512_abs_ps(a); }
static inline lanes_mask lanes_above(lanes a, lanes b) { return _mm512_cmp_ps_mask(a, b, _CMP_GT_OQ); }
static inline lanes_mask lanes_both(lanes_mask a, lanes_mask b) { return a & b; }
static inline lanes lanes_pick(lanes_mask mask, lanes a, lanes b) { return _mm512_mask_mov_ps(b, mask, a); }
static inline lanes lanes_trunc(lanes a) { return _mm512_cvtepi32_ps(_mm512_cvttps_epi32(a)); }
static inline lanes lanes_nearest(lanes a) {
    return _mm512_roundscale_ps(a, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
}
static inline lanes lanes_add_exact(lanes sum, lanes a, lanes b) { return _mm512_fmadd_ps(a, b, sum); }
static inline void lanes_turn(lanes *a) {
    __m512 b[16];
#pragma GCC unroll 8
    for (int i = 0; i < 16; i += 2) {
        b[i] = _mm512_unpacklo_ps(a[i], a[i + 1]);
        b[i + 1] = _mm512_unpackhi_ps(a[i], a[i + 1]);
    }
#pragma GCC unroll 4
    for (int i = 0; i < 16; i += 4) { /* columns c, c + 4, c + 8, c + 12 of 4 rows */
#pragma GCC unroll 2
        for (int half = 0; half < 2; half++) {
            const __m512d first = _mm512_castps_pd(b[i + half]), second = _mm512_castps_pd(b[i + 2 + half]);
            a[i + 2 * half] = _mm512_castpd_ps(_mm512_unpacklo_pd(first, second));
            a[i + 2 * half + 1] = _mm512_castpd_ps(_mm512_unpackhi_pd(first, second));
        }
    }
#pragma GCC unroll 4
    for (int i = 0; i < 4; i++) { /* quarters 0 and 2, 1 and 3 of 8 rows */
        b[i] = _mm512_shuffle_f32x4(a[i], a[i + 4], 0x88);
        b[i + 4] = _mm512_shuffle_f32x4(a[i], a[i + 4], 0xdd);
        b[i + 8] = _mm512_shuffle_f32x4(a[i + 8], a[i + 12], 0x88);
        b[i + 12] = _mm512_shuffle_f32x4(a[i + 8], a[i + 12], 0xdd);
    }
#pragma GCC unroll 4
    for (int i = 0; i < 4; i++) {
        a[i] = _mm512_shuffle_f32x4(b[i], b[i + 8], 0x88);
        a[i + 4] = _mm512_shuffle_f32x4(b[i + 4], b[i + 12], 0x88);
        a[i + 8] = _mm512_shuffle_f32x4(b[i], b[i + 8], 0xdd);
        a[i + 12] = _mm512_shuffle_f32x4(b[i + 4], b[i + 12], 0xdd);
    }
}
static inline void lanes_store_bytes(uint8_t *to, lanes a) {
    _mm_storeu_si128((__m128i *)to, _mm512_cvtepi32_epi8(_mm512_cvttps_epi32(a)));
}

#endif
