/* Primitives of AVX2 that convert codes to values, integers and bytes. */
#ifndef HC_SIMD_AVX2_DECODE_H
#define HC_SIMD_AVX2_DECODE_H

#include "formats/simd/codes.h"
#include "formats/simd/x86.h"

#include <float.h>
#include <string.h>

/* Unpacks 4-bit codes to bytes, 32 at a time; returns the number of unpacked codes, the largest multiple of 32 in n. */
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

/* Unpacks codes of up to 7 bits to bytes, 32 at a time; returns the number of unpacked codes. It stops before a load
 * would pass `end`. Each 128-bit half of a register gets 16 codes, each 32-bit word a quad of 4. If the number of bits
 * is odd, odd quads begin in the middle of a byte and are shifted. Then codes 2 and 3 of each quad move to the upper
 * half of the word, and codes 1 and 3 to the upper byte of their half. */
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

/* Looks up codes below 16 in a table, 32 at a time; returns the number of converted codes. */
static inline int64_t simd_lookup16(const uint8_t *codes, int64_t n, const int8_t table[16], int8_t *out) {
    const __m256i values = _mm256_broadcastsi128_si256(_mm_loadu_si128((const __m128i *)(const void *)table));
    int64_t i = 0;
    for (; i + 32 <= n; i += 32) {
        const __m256i code = _mm256_loadu_si256((const __m256i *)(const void *)(codes + i));
        _mm256_storeu_si256((__m256i *)(void *)(out + i), _mm256_shuffle_epi8(values, code));
    }
    return i;
}

/* Multiplies signed 4-bit codes by the 4-bit scales of their groups, 64 codes at a time; returns the number of
 * converted codes. The first scale is in the low half of a byte. A group has 16, 32 or 64 codes. Each scale has a table
 * of its products with all codes. */
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

/* For NaN, min and max return their second operand: NaN stays. */
static inline __m256 saturated_f32x8(__m256 product) {
    return _mm256_max_ps(_mm256_set1_ps(-FLT_MAX), _mm256_min_ps(_mm256_set1_ps(FLT_MAX), product));
}

static inline __m256 value_f32x8(__m128i byte, bool is_signed, __m256i zero, __m256i integer, __m256 real) {
    __m256i code = is_signed ? _mm256_cvtepi8_epi32(byte) : _mm256_cvtepu8_epi32(byte);
    code = _mm256_mullo_epi32(_mm256_sub_epi32(code, zero), integer);
    return saturated_f32x8(_mm256_mul_ps(real, _mm256_cvtepi32_ps(code)));
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

/* values[j] = real * (scale * code[j]), saturated, for 64 signed 4-bit codes in groups of 16 with a 4-bit scale
 * each. */
static inline __attribute__((always_inline)) void simd_folded_values(const uint8_t *codes, const uint8_t *scales,
                                                                     float real, float *values) {
    const __m128i nibbles = _mm_set1_epi8(15);
    const __m256 real_f32x8 = _mm256_set1_ps(real);
#pragma GCC unroll 4
    for (int i = 0; i < 4; i++) {
        const __m128i table = _mm_load_si128((const __m128i *)(const void *)hc_times4[scales[i / 2] >> i % 2 * 4 & 15]);
        const __m128i pair = _mm_cvtepu8_epi16(_mm_loadl_epi64((const __m128i *)(const void *)(codes + 8 * i)));
        const __m128i code = _mm_and_si128(_mm_or_si128(pair, _mm_slli_epi16(pair, 4)), nibbles);
        const __m128i folded = _mm_shuffle_epi8(table, code);
        const __m256 low = _mm256_cvtepi32_ps(_mm256_cvtepi8_epi32(folded));
        const __m256 high = _mm256_cvtepi32_ps(_mm256_cvtepi8_epi32(_mm_unpackhi_epi64(folded, folded)));
        _mm256_storeu_ps(values + 16 * i, saturated_f32x8(_mm256_mul_ps(real_f32x8, low)));
        _mm256_storeu_ps(values + 16 * i + 8, saturated_f32x8(_mm256_mul_ps(real_f32x8, high)));
    }
}

typedef struct {
    __m256 low, high;
} hc_table16;

static inline hc_table16 load_table16(const float *table) {
    return (hc_table16){_mm256_loadu_ps(table), _mm256_loadu_ps(table + 8)};
}

static inline __attribute__((always_inline)) __m256 scaled_entries(const float *table, hc_element_kind kind,
                                                                   const bool has_integer, float integer, float scale) {
    const __m256 zero = _mm256_setzero_ps();
    __m256 entry = _mm256_loadu_ps(table);
    if (has_integer)
        entry = _mm256_add_ps(_mm256_mul_ps(entry, _mm256_set1_ps(integer)), zero);
    entry = saturated_f32x8(_mm256_mul_ps(_mm256_set1_ps(scale), entry));
    return has_no_minus_zero(kind) ? _mm256_add_ps(entry, zero) : entry;
}

/* scale * (integer * entry), saturated. The exact product integer * entry is never minus zero. */
static inline __attribute__((always_inline)) hc_table16 simd_scaled_entries(const float *table, hc_element_kind kind,
                                                                            const bool has_integer, float integer,
                                                                            float scale) {
    return (hc_table16){scaled_entries(table, kind, has_integer, integer, scale),
                        scaled_entries(table + 8, kind, has_integer, integer, scale)};
}

/* values[j] = table entry of the 4-bit code j; n is a multiple of 16. */
static inline __attribute__((always_inline)) void simd_lookup4(const uint8_t *codes, int64_t n, hc_table16 table,
                                                               float *values) {
    const __m256i up = _mm256_setr_epi32(28, 24, 20, 16, 12, 8, 4, 0); /* bit 3 of a code becomes the sign */
    for (int64_t i = 0; i < n; i += 8) {
        int32_t stored;
        memcpy(&stored, codes + i / 2, sizeof stored);
        const __m256i word = _mm256_sllv_epi32(_mm256_set1_epi32(stored), up), code = _mm256_srli_epi32(word, 28);
        const __m256 low = _mm256_permutevar8x32_ps(table.low, code);
        const __m256 high = _mm256_permutevar8x32_ps(table.high, code);
        _mm256_storeu_ps(values + i, _mm256_blendv_ps(low, high, _mm256_castsi256_ps(word)));
    }
}

static inline __m256 scaled_products(const double *table, double scale) {
    const __m256d factor = _mm256_set1_pd(scale);
    const __m128 low = _mm256_cvtpd_ps(_mm256_mul_pd(factor, _mm256_loadu_pd(table)));
    const __m128 high = _mm256_cvtpd_ps(_mm256_mul_pd(factor, _mm256_loadu_pd(table + 4)));
    return saturated_f32x8(_mm256_set_m128(high, low));
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
    if (is_by_256(kind)) { /* eight loads: vgatherdps takes 1.6 times as long on a Zen 4 (2026-11) */
        const uint64_t all = (uint64_t)_mm_cvtsi128_si64(byte);
        return _mm256_setr_ps(large[all & 255], large[all >> 8 & 255], large[all >> 16 & 255], large[all >> 24 & 255],
                              large[all >> 32 & 255], large[all >> 40 & 255], large[all >> 48 & 255], large[all >> 56]);
    }
    if (kind == HC_BY_INT8)
        return _mm256_mul_ps(_mm256_cvtepi32_ps(_mm256_cvtepi8_epi32(byte)), _mm256_set1_ps(0x1p-6f));
    const hc_half_form form = half_form(kind);
    const __m128i code = _mm_cvtepi8_epi16(byte);
    __m128i half = _mm_and_si128(_mm_slli_epi16(code, form.shift), _mm_set1_epi16(form.mask));
    if (form.beyond) { /* NaN loses its payload and keeps its sign */
        const __m128i sign = _mm_set1_epi16(-0x8000), magnitude = _mm_andnot_si128(sign, half);
        const __m128i is_nan = _mm_cmpgt_epi16(magnitude, _mm_set1_epi16(form.beyond));
        const __m128i nan = _mm_or_si128(_mm_and_si128(half, sign), _mm_set1_epi16(0x7e00));
        half = _mm_blendv_epi8(half, nan, is_nan);
    }
    const __m256 value = _mm256_cvtph_ps(half);
    return kind == HC_BY_E5M2 ? value : _mm256_mul_ps(value, _mm256_set1_ps(form.factor));
}

static inline __attribute__((always_inline)) __m256 scaled_f32x8(__m256 element, hc_element_kind kind, float scale) {
    const __m256 product = _mm256_mul_ps(_mm256_set1_ps(scale), element), value = saturated_f32x8(product);
    if (has_no_minus_zero(kind))
        return _mm256_add_ps(value, _mm256_setzero_ps());
    if (kind != HC_BY_E5M2)
        return value;
    const __m256 magnitude = _mm256_andnot_ps(_mm256_set1_ps(-0.0f), element);
    return _mm256_blendv_ps(value, product, _mm256_cmp_ps(magnitude, _mm256_set1_ps(FLT_MAX), _CMP_GT_OQ));
}

/* values[j] = element of code[j], times the scale if `scaled`; finite elements saturate. Reads up to 7 codes too
 * many. */
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

/* Factors of groups in blocks (avx512_decode.h): this set has no kernel for them and returns 0. */
static inline int64_t simd_block_factors(int bits, bool in_pairs, bool is_minimum, const uint8_t *from,
                                         const uint8_t *coarse, int64_t n, float *out) {
    (void)bits, (void)in_pairs, (void)is_minimum, (void)from, (void)coarse, (void)n, (void)out;
    return 0;
}

#endif
