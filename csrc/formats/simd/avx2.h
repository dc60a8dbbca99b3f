/* The primitives of formats/simd for AVX2. A unit is two registers.
 *
 * Small floats: adding 2^(e + 23 - m) to a magnitude with exponent e (at least the smallest normal one) rounds it to m
 * bits, RNE, and leaves them low in the sum. What is added has the code of 2^e in these bits too, so that the sum ends in
 * the code.
 */
#ifndef HC_SIMD_AVX2_H
#define HC_SIMD_AVX2_H

#include "formats/simd/codes.h"
#include "formats/simd/x86.h"

#include <float.h>
#include <string.h>

#define HC_SIMD_F64 4 /* float64 in a register */

/* --- encoding --- */

/* The bits of |x|, max(x, 0) or max(-x, 0): magnitudes compare as integers. */
static inline __m256i magnitude_i32x8(__m256i x, int which) {
    if (which == HC_ABSOLUTE)
        return _mm256_and_si256(x, _mm256_set1_epi32(0x7fffffff));
    if (which == HC_NEGATIVE)
        x = _mm256_xor_si256(x, _mm256_set1_epi32(INT32_MIN));
    return _mm256_max_epi32(x, _mm256_setzero_si256());
}

static inline __m256i load_i32x8(const float *x) { return _mm256_loadu_si256((const __m256i *)x); }

/* Lane i of the answer is the largest lane of v[i]. */
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
    } else { /* the same code from a little less and a little more: no midpoint between */
        sum = _mm256_castps_si256(_mm256_fmadd_ps(cut, _mm256_set1_ps(1 - HC_QUOTIENT_ERROR), add));
        const __m256 more = _mm256_fmadd_ps(cut, _mm256_set1_ps(1 + HC_QUOTIENT_ERROR), add);
        *apart = _mm256_or_si256(*apart, _mm256_xor_si256(sum, _mm256_castps_si256(more)));
    }
    const __m256i sign = _mm256_srli_epi32(_mm256_castps_si256(quotient), 32 - type.bits);
    const __m256i magnitude = _mm256_set1_epi32((1 << (type.bits - 1)) - 1);
    return _mm256_or_si256(_mm256_and_si256(sum, magnitude), _mm256_andnot_si256(magnitude, sign));
}

/* Four units as simd_codes: false where a quotient is near a midpoint. */
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

/* Codes of 8 values by the reciprocal, as int32; `worst` gathers the distances to the integers. */
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

/* Four units; false where a quotient is near a midpoint, so that the codes must be made again by division. */
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

/* Codes of 8 values that are exact: the remainder x - k * s is, and tells on which side of the midpoint x lies. */
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
    /* all ones is minus one: added it goes down, subtracted up */
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

/* --- decoding --- */

/* The first multiple of 32 of n codes of 4 bits, as bytes; returns how many. */
static inline int64_t simd_unpack4(const uint8_t *from, int64_t n, bool is_signed, uint8_t *out) {
    const __m256i nibbles = _mm256_set1_epi8(15), sign = _mm256_set1_epi8(is_signed ? 8 : 0);
    int64_t i = 0;
    for (; i + 32 <= n; i += 32) {
        const __m256i pair_u16x16 = _mm256_cvtepu8_epi16(_mm_loadu_si128((const __m128i *)(from + i / 2)));
        const __m256i both = _mm256_or_si256(pair_u16x16, _mm256_slli_epi16(pair_u16x16, 4));
        const __m256i code = _mm256_and_si256(both, nibbles); /* (code ^ 8) - 8 extends the sign */
        _mm256_storeu_si256((__m256i *)(out + i), _mm256_sub_epi8(_mm256_xor_si256(code, sign), sign));
    }
    return i;
}

/* A multiple of 32 of n codes of up to 7 bits, as bytes, the last of a row not; returns how many. 16 codes go into each
 * half; 4 of them into 32 bits, where odd quads of an odd number of bits begin in the middle of a byte; codes 2 and 3 into
 * the upper half of these, and 1 and 3 into the upper halves of halves. */
static inline int64_t simd_unpack(const uint8_t *from, const uint8_t *end, int64_t n, int bits, bool is_signed,
                                  uint8_t *out) {
    uint8_t at[16];
    quad_bytes(bits, at);
    const __m256i quads = _mm256_broadcastsi128_si256(_mm_loadu_si128((const __m128i *)(const void *)at));
    const __m256i begin = _mm256_set1_epi64x((int64_t)(bits % 2) << 34);
    const __m128i up = _mm_cvtsi32_si128(16 - 2 * bits), up_byte = _mm_cvtsi32_si128(8 - bits);
    const __m256i code = _mm256_set1_epi16(0xff), mask = _mm256_set1_epi8((int8_t)((1 << bits) - 1));
    const __m256i sign = _mm256_set1_epi8((int8_t)(is_signed ? 1 << (bits - 1) : 0));
    int64_t i = 0;
    for (; i + 32 <= n && end - from >= 2 * bits + 16; i += 32, from += 4 * bits) {
        const __m128i low = _mm_loadu_si128((const __m128i *)(const void *)from);
        const __m128i high = _mm_loadu_si128((const __m128i *)(const void *)(from + 2 * bits));
        __m256i v = _mm256_inserti128_si256(_mm256_castsi128_si256(low), high, 1);
        v = _mm256_srlv_epi32(_mm256_shuffle_epi8(v, quads), begin);
        v = _mm256_blend_epi16(v, _mm256_sll_epi32(v, up), 0xaa);
        v = _mm256_blendv_epi8(_mm256_sll_epi16(v, up_byte), v, code);
        v = _mm256_and_si256(v, mask);
        _mm256_storeu_si256((__m256i *)(void *)(out + i), _mm256_sub_epi8(_mm256_xor_si256(v, sign), sign));
    }
    return i;
}

/* The first multiple of 32 of n codes below 16, by a table; returns how many. */
static inline int64_t simd_lookup16(const uint8_t *codes, int64_t n, const int8_t table[16], int8_t *out) {
    const __m256i values = _mm256_broadcastsi128_si256(_mm_loadu_si128((const __m128i *)(const void *)table));
    int64_t i = 0;
    for (; i + 32 <= n; i += 32) {
        const __m256i code = _mm256_loadu_si256((const __m256i *)(const void *)(codes + i));
        _mm256_storeu_si256((__m256i *)(void *)(out + i), _mm256_shuffle_epi8(values, code));
    }
    return i;
}

/* The first multiple of 64 of n signed codes of 4 bits, times their groups' scales of 4 bits, of which the first is the first
 * of a byte; a group holds 16, 32 or 64 codes. Each scale has a table of its products. */
static inline int64_t simd_fold4(const uint8_t *codes, const uint8_t *scales, int64_t group, int64_t n, int8_t *out) {
    const __m256i nibbles = _mm256_set1_epi8(15);
    const int log2_group = __builtin_ctzll((uint64_t)group);
    int64_t i = 0;
    for (; i + 32 <= n / 64 * 64; i += 32) {
        const uint64_t a = (uint64_t)i >> log2_group, b = (uint64_t)(i + 16) >> log2_group;
        const int first = scales[a / 2] >> (a % 2 * 4) & 15, second = scales[b / 2] >> (b % 2 * 4) & 15;
        const __m256i table = _mm256_set_m128i(_mm_load_si128((const __m128i *)(const void *)hc_times4[second]),
                                               _mm_load_si128((const __m128i *)(const void *)hc_times4[first]));
        const __m256i pair_u16x16 = _mm256_cvtepu8_epi16(_mm_loadu_si128((const __m128i *)(codes + i / 2)));
        const __m256i code = _mm256_and_si256(_mm256_or_si256(pair_u16x16, _mm256_slli_epi16(pair_u16x16, 4)), nibbles);
        _mm256_storeu_si256((__m256i *)(out + i), _mm256_shuffle_epi8(table, code));
    }
    return i;
}

static inline __m256 value_f32x8(__m128i byte, bool is_signed, __m256i zero, __m256i integer, __m256 real) {
    __m256i code = is_signed ? _mm256_cvtepi8_epi32(byte) : _mm256_cvtepu8_epi32(byte);
    code = _mm256_mullo_epi32(_mm256_sub_epi32(code, zero), integer);
    /* the second operand of min and max is what a NaN scale leaves */
    const __m256 product = _mm256_min_ps(_mm256_set1_ps(FLT_MAX), _mm256_mul_ps(real, _mm256_cvtepi32_ps(code)));
    return _mm256_max_ps(_mm256_set1_ps(-FLT_MAX), product);
}

/* values[j] = real * (integer * (code[j] - zero)), saturated. */
static inline __attribute__((always_inline)) void
simd_values(const uint8_t *codes, int64_t n, bool is_signed, int32_t zero, int32_t integer, float real, float *values) {
    const __m256i zero_i32x8 = _mm256_set1_epi32(zero), integer_i32x8 = _mm256_set1_epi32(integer);
    const __m256 real_f32x8 = _mm256_set1_ps(real);
    int64_t i = 0;
    for (; i + 8 <= n; i += 8)
        _mm256_storeu_ps(values + i, value_f32x8(_mm_loadl_epi64((const __m128i *)(codes + i)), is_signed, zero_i32x8,
                                                 integer_i32x8, real_f32x8));
    if (i < n) {
        float last[8];
        _mm256_storeu_ps(last, value_f32x8(_mm_loadl_epi64((const __m128i *)(codes + i)), is_signed, zero_i32x8,
                                           integer_i32x8, real_f32x8));
        memcpy(values + i, last, (size_t)(n - i) * sizeof *last);
    }
}

typedef struct {
    __m256 low, high;
} hc_table16;

static inline hc_table16 load_table16(const float *table) {
    return (hc_table16){_mm256_loadu_ps(table), _mm256_loadu_ps(table + 8)};
}

static inline __m256 scaled_products(const double *table, double scale) {
    const __m256d factor = _mm256_set1_pd(scale);
    const __m128 low = _mm256_cvtpd_ps(_mm256_mul_pd(factor, _mm256_loadu_pd(table)));
    const __m128 high = _mm256_cvtpd_ps(_mm256_mul_pd(factor, _mm256_loadu_pd(table + 4)));
    const __m256 all = _mm256_set_m128(high, low), most = _mm256_set1_ps(FLT_MAX);
    return _mm256_max_ps(_mm256_set1_ps(-FLT_MAX), _mm256_min_ps(most, all)); /* of a NaN the second stays */
}

/* 16 products, each rounded once from float64 and saturated. */
static inline hc_table16 scaled_table16(const double *table, double scale) {
    return (hc_table16){scaled_products(table, scale), scaled_products(table + 8, scale)};
}

/* Elements of 8 codes. */
static inline __attribute__((always_inline)) __m256 elements_f32x8(const uint8_t *codes, hc_element_kind kind,
                                                                   hc_table16 table, const float *large) {
    const __m128i byte = _mm_loadl_epi64((const __m128i *)codes);
    if (is_by_16(kind)) {
        const __m256i index = _mm256_cvtepu8_epi32(byte);
        return _mm256_blendv_ps(_mm256_permutevar8x32_ps(table.low, index), _mm256_permutevar8x32_ps(table.high, index),
                                _mm256_castsi256_ps(_mm256_slli_epi32(index, 28)));
    }
    if (is_by_256(kind))
        return _mm256_i32gather_ps(large, _mm256_cvtepu8_epi32(byte), 4);
    if (kind == HC_BY_INT8)
        return _mm256_mul_ps(_mm256_cvtepi32_ps(_mm256_cvtepi8_epi32(byte)), _mm256_set1_ps(0x1p-6f));
    const hc_half_form form = half_form(kind);
    const __m128i code = _mm_cvtepi8_epi16(byte);
    __m128i half = _mm_and_si128(_mm_slli_epi16(code, form.shift), _mm_set1_epi16(form.mask));
    if (form.beyond) { /* one NaN for all */
        const __m128i sign = _mm_set1_epi16(-0x8000), magnitude = _mm_andnot_si128(sign, half);
        const __m128i is_nan = _mm_cmpgt_epi16(magnitude, _mm_set1_epi16(form.beyond));
        const __m128i nan = _mm_or_si128(_mm_and_si128(half, sign), _mm_set1_epi16(0x7e00));
        half = _mm_blendv_epi8(half, nan, is_nan);
    }
    const __m256 value = _mm256_cvtph_ps(half);
    return kind == HC_BY_E5M2 ? value : _mm256_mul_ps(value, _mm256_set1_ps(form.factor));
}

static inline __attribute__((always_inline)) __m256 scaled_f32x8(__m256 element, hc_element_kind kind, float scale) {
    const __m256 product = _mm256_mul_ps(_mm256_set1_ps(scale), element), largest = _mm256_set1_ps(FLT_MAX);
    /* the second operand of min and max is what a NaN leaves */
    const __m256 value = _mm256_max_ps(_mm256_set1_ps(-FLT_MAX), _mm256_min_ps(largest, product));
    if (has_no_minus_zero(kind))
        return _mm256_add_ps(value, _mm256_setzero_ps());
    if (kind != HC_BY_E5M2)
        return value;
    const __m256 magnitude = _mm256_andnot_ps(_mm256_set1_ps(-0.0f), element);
    return _mm256_blendv_ps(value, product, _mm256_cmp_ps(magnitude, largest, _CMP_GT_OQ));
}

/* values[j] = element of code[j], times the scale, which saturates what is finite; reads up to 7 codes more. */
static inline __attribute__((always_inline)) void simd_elements(const uint8_t *codes, int64_t n, hc_element_kind kind,
                                                                hc_table16 table, const float *large, bool scaled,
                                                                float scale, float *values) {
    for (int64_t i = 0; i < n; i += 8) {
        __m256 value = elements_f32x8(codes + i, kind, table, large);
        if (scaled)
            value = scaled_f32x8(value, kind, scale);
        if (n - i >= 8) {
            _mm256_storeu_ps(values + i, value);
        } else {
            float last[8];
            _mm256_storeu_ps(last, value);
            memcpy(values + i, last, (size_t)(n - i) * sizeof *last);
        }
    }
}

/* Factors of groups in blocks, many at a time: none with this set. */
static inline int64_t simd_block_factors(int bits, bool in_pairs, bool is_minimum, const uint8_t *from,
                                         const uint8_t *coarse, int64_t n, float *out) {
    (void)bits, (void)in_pairs, (void)is_minimum, (void)from, (void)coarse, (void)n, (void)out;
    return 0;
}

/* --- several floats as one; formats/lanes.h has one and says what each does --- */

enum { LANES = 8 };
typedef __m256 lanes;
typedef __m256 lanes_mask;
static inline lanes lanes_load(const float *from) { return _mm256_loadu_ps(from); }
static inline void lanes_store(float *to, lanes a) { _mm256_storeu_ps(to, a); }
static inline lanes lanes_of(float a) { return _mm256_set1_ps(a); }
static inline lanes lanes_add(lanes a, lanes b) { return _mm256_add_ps(a, b); }
static inline lanes lanes_sub(lanes a, lanes b) { return _mm256_sub_ps(a, b); }
static inline lanes lanes_mul(lanes a, lanes b) { return _mm256_mul_ps(a, b); }
static inline lanes lanes_div(lanes a, lanes b) { return _mm256_div_ps(a, b); }
static inline lanes lanes_min(lanes a, lanes b) { return _mm256_min_ps(a, b); }
static inline lanes lanes_max(lanes a, lanes b) { return _mm256_max_ps(a, b); }
static inline lanes lanes_abs(lanes a) { return _mm256_andnot_ps(_mm256_set1_ps(-0.0f), a); }
static inline lanes_mask lanes_above(lanes a, lanes b) { return _mm256_cmp_ps(a, b, _CMP_GT_OQ); }
static inline lanes_mask lanes_both(lanes_mask a, lanes_mask b) { return _mm256_and_ps(a, b); }
static inline lanes lanes_pick(lanes_mask mask, lanes a, lanes b) { return _mm256_blendv_ps(b, a, mask); }
static inline lanes lanes_trunc(lanes a) { return _mm256_cvtepi32_ps(_mm256_cvttps_epi32(a)); }
static inline lanes lanes_nearest(lanes a) { return _mm256_round_ps(a, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC); }
static inline lanes lanes_add_exact(lanes sum, lanes a, lanes b) { return _mm256_fmadd_ps(a, b, sum); }
static inline void lanes_turn(lanes *a) {
    __m256 b[8];
#pragma GCC unroll 4
    for (int i = 0; i < 8; i += 2) {
        b[i] = _mm256_unpacklo_ps(a[i], a[i + 1]);
        b[i + 1] = _mm256_unpackhi_ps(a[i], a[i + 1]);
    }
#pragma GCC unroll 2
    for (int i = 0; i < 8; i += 4) { /* columns c and c + 4 of 4 rows */
#pragma GCC unroll 2
        for (int half = 0; half < 2; half++) {
            const __m256d first = _mm256_castps_pd(b[i + half]), second = _mm256_castps_pd(b[i + 2 + half]);
            a[i + 2 * half] = _mm256_castpd_ps(_mm256_unpacklo_pd(first, second));
            a[i + 2 * half + 1] = _mm256_castpd_ps(_mm256_unpackhi_pd(first, second));
        }
    }
#pragma GCC unroll 4
    for (int i = 0; i < 4; i++) {
        b[i] = _mm256_permute2f128_ps(a[i], a[i + 4], 0x20);
        b[i + 4] = _mm256_permute2f128_ps(a[i], a[i + 4], 0x31);
    }
#pragma GCC unroll 8
    for (int i = 0; i < 8; i++)
        a[i] = b[i];
}
static inline void lanes_store_bytes(uint8_t *to, lanes a) {
    const __m256i whole = _mm256_cvttps_epi32(a);
    const __m128i words = _mm_packs_epi32(_mm256_castsi256_si128(whole), _mm256_extracti128_si256(whole, 1));
    const __m128i low = _mm_and_si128(words, _mm_set1_epi16(0xff));
    _mm_storel_epi64((__m128i *)to, _mm_packus_epi16(low, low));
}

#endif
