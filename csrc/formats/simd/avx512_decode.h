/* Primitives of AVX-512 that convert codes to values, integers and bytes. */
#ifndef HC_SIMD_AVX512_DECODE_H
#define HC_SIMD_AVX512_DECODE_H

#include "formats/simd/codes.h"
#include "formats/simd/x86.h"

#include <float.h>

/* The row of hc_times4 for the scale in bits [4, 8) of `numbers`. A row has 16 bytes, so these bits are its offset. */
static inline __m128i times4(uint32_t numbers) {
    return _mm_load_si128((const __m128i *)(const void *)(&hc_times4[0][0] + (numbers & 0xf0)));
}

/* Unpacks 4-bit codes to bytes, 64 at a time; returns the number of unpacked codes, the largest multiple of 64 in n. */
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

/* Unpacks codes of up to 7 bits to bytes, 64 at a time; returns the number of unpacked codes. Each 128-bit quarter of a
 * register gets 16 codes, each 32-bit word a quad of 4. If the number of bits is odd, odd quads begin in the middle of
 * a byte and are shifted. Then codes 2 and 3 of each quad move to the upper half of the word, and codes 1 and 3 to the
 * upper byte of their half. */
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

/* Looks up codes below 16 in a table, 64 at a time; returns the number of converted codes. */
static inline int64_t simd_lookup16(const uint8_t *codes, int64_t n, const int8_t table[16], int8_t *out) {
    const __m512i values = _mm512_broadcast_i32x4(_mm_loadu_si128((const __m128i *)(const void *)table));
    int64_t i = 0;
    for (; i + 64 <= n; i += 64)
        _mm512_storeu_si512(out + i, _mm512_shuffle_epi8(values, _mm512_loadu_si512(codes + i)));
    return i;
}

/* 64 signed 4-bit codes, times the 4-bit scales of their groups, which are in `numbers` from bit 4 on. */
static inline __attribute__((always_inline)) __m512i folded_i8x64(const uint8_t *codes, uint32_t numbers,
                                                                  const int group) {
    const int groups = 64 / group;
    const __m512i nibbles = _mm512_set1_epi8(15);
    __m512i table = _mm512_broadcast_i32x4(times4(numbers)); /* the products of each quarter */
    if (groups == 4)
        table = _mm512_mask_broadcast_i32x4(table, 0x00f0, times4(numbers >> 4));
    if (groups >= 2)
        table = _mm512_mask_broadcast_i32x4(table, 0xff00, times4(numbers >> (groups == 4 ? 8 : 4)));
    if (groups == 4)
        table = _mm512_mask_broadcast_i32x4(table, 0xf000, times4(numbers >> 12));
    const __m512i pair_u16x32 = _mm512_cvtepu8_epi16(_mm256_loadu_si256((const __m256i *)codes));
    const __m512i code = _mm512_and_si512(_mm512_or_si512(pair_u16x32, _mm512_slli_epi16(pair_u16x32, 4)), nibbles);
    return _mm512_shuffle_epi8(table, code);
}

static inline __attribute__((always_inline)) void fold4(const uint8_t *codes, const uint8_t *scales, const int group,
                                                        int64_t n, int8_t *out) {
    for (int64_t i = 0; i + 64 <= n; i += 64) {
        uint32_t numbers = 0;
        if (group == 16)
            numbers = (uint32_t)hc_load_u16(scales + i / 32) << 4;
        else if (group == 32)
            numbers = (uint32_t)scales[i / 64] << 4;
        else
            numbers = (uint32_t)scales[i / 128] << (i % 128 == 0 ? 4 : 0);
        _mm512_storeu_si512(out + i, folded_i8x64(codes + i / 2, numbers, group));
    }
}

/* Multiplies signed 4-bit codes by the 4-bit scales of their groups, 64 codes at a time; returns the number of
 * converted codes. The first scale is in the low half of a byte. A group has 16, 32 or 64 codes. Each scale has a table
 * of its products with all codes. */
static inline int64_t simd_fold4(const uint8_t *codes, const uint8_t *scales, int64_t group, int64_t n, int8_t *out) {
    if (group == 16)
        fold4(codes, scales, 16, n, out);
    else if (group == 32)
        fold4(codes, scales, 32, n, out);
    else
        fold4(codes, scales, 64, n, out);
    return n / 64 * 64;
}

/* Stores the first n of 16 values. */
static inline __attribute__((always_inline)) void store_first(float *to, int64_t n, __m512 values) {
    if (n >= 16)
        _mm512_storeu_ps(to, values);
    else
        _mm512_mask_storeu_ps(to, (__mmask16)((1u << n) - 1), values);
}

/* values[j] = real * (integer * (code[j] - zero)), saturated. */
static inline __attribute__((always_inline)) void
simd_values(const uint8_t *codes, int64_t n, bool is_signed, int32_t zero, int32_t integer, float real, float *values) {
    const __m512i zero_i32x16 = _mm512_set1_epi32(zero), integer_i32x16 = _mm512_set1_epi32(integer);
    const __m512 real_f32x16 = _mm512_set1_ps(real), largest = _mm512_set1_ps(FLT_MAX);
    int64_t i = 0;
    if (zero == 0 && integer == 1) /* the integer multiplication takes as long as the rest of the loop */
        for (; i + 16 <= n; i += 16) {
            const __m128i byte = _mm_loadu_si128((const __m128i *)(codes + i));
            const __m512i code = is_signed ? _mm512_cvtepi8_epi32(byte) : _mm512_cvtepu8_epi32(byte);
            const __m512 product = _mm512_min_ps(largest, _mm512_mul_ps(real_f32x16, _mm512_cvtepi32_ps(code)));
            _mm512_storeu_ps(values + i, _mm512_max_ps(_mm512_set1_ps(-FLT_MAX), product));
        }
    for (; i < n; i += 16) {
        const __m128i byte = _mm_loadu_si128((const __m128i *)(codes + i));
        __m512i code = is_signed ? _mm512_cvtepi8_epi32(byte) : _mm512_cvtepu8_epi32(byte);
        code = _mm512_mullo_epi32(_mm512_sub_epi32(code, zero_i32x16), integer_i32x16);
        /* if the scale is NaN, min and max return their second operand: NaN stays */
        const __m512 product = _mm512_min_ps(largest, _mm512_mul_ps(real_f32x16, _mm512_cvtepi32_ps(code)));
        store_first(values + i, n - i, _mm512_max_ps(_mm512_set1_ps(-FLT_MAX), product));
    }
}

/* values[j] = real * (scale * code[j]), saturated, for 64 signed 4-bit codes in groups of 16 with a 4-bit scale
 * each. */
static inline __attribute__((always_inline)) void simd_folded_values(const uint8_t *codes, const uint8_t *scales,
                                                                     float real, float *values) {
    const __m512i folded = folded_i8x64(codes, (uint32_t)hc_load_u16(scales) << 4, 16);
    const __m128i quarter[4] = {_mm512_castsi512_si128(folded), _mm512_extracti32x4_epi32(folded, 1),
                                _mm512_extracti32x4_epi32(folded, 2), _mm512_extracti32x4_epi32(folded, 3)};
    const __m512 real_f32x16 = _mm512_set1_ps(real), largest = _mm512_set1_ps(FLT_MAX);
#pragma GCC unroll 4
    for (int i = 0; i < 4; i++) {
        const __m512 whole = _mm512_cvtepi32_ps(_mm512_cvtepi8_epi32(quarter[i]));
        /* if `real` is NaN, min and max return their second operand: NaN stays */
        const __m512 product = _mm512_min_ps(largest, _mm512_mul_ps(real_f32x16, whole));
        _mm512_storeu_ps(values + 16 * i, _mm512_max_ps(_mm512_set1_ps(-FLT_MAX), product));
    }
}

typedef __m512 hc_table16;

static inline hc_table16 load_table16(const float *table) { return _mm512_loadu_ps(table); }

/* scale * (integer * entry), saturated. The exact product integer * entry is never minus zero. */
static inline __attribute__((always_inline)) hc_table16 simd_scaled_entries(const float *table, hc_element_kind kind,
                                                                            const bool has_integer, float integer,
                                                                            float scale) {
    const __m512 largest = _mm512_set1_ps(FLT_MAX), zero = _mm512_setzero_ps();
    __m512 entry = _mm512_loadu_ps(table);
    if (has_integer)
        entry = _mm512_add_ps(_mm512_mul_ps(entry, _mm512_set1_ps(integer)), zero);
    /* if the scale is NaN, min and max return their second operand: NaN stays */
    entry = _mm512_min_ps(largest, _mm512_mul_ps(_mm512_set1_ps(scale), entry));
    entry = _mm512_max_ps(_mm512_set1_ps(-FLT_MAX), entry);
    return has_no_minus_zero(kind) ? _mm512_add_ps(entry, zero) : entry;
}

/* values[j] = table entry of the 4-bit code j; n is a multiple of 16. */
static inline __attribute__((always_inline)) void simd_lookup4(const uint8_t *codes, int64_t n, hc_table16 table,
                                                               float *values) {
    const __m512i half = _mm512_setr_epi32(0, 0, 0, 0, 0, 0, 0, 0, 1, 1, 1, 1, 1, 1, 1, 1);
    const __m512i down = _mm512_setr_epi32(0, 4, 8, 12, 16, 20, 24, 28, 0, 4, 8, 12, 16, 20, 24, 28);
    for (int64_t i = 0; i < n; i += 16) {
        const __m128i stored = _mm_loadl_epi64((const __m128i *)(const void *)(codes + i / 2));
        const __m512i words = _mm512_permutexvar_epi32(half, _mm512_castsi128_si512(stored));
        _mm512_storeu_ps(values + i, _mm512_permutexvar_ps(_mm512_srlv_epi32(words, down), table));
    }
}

/* 16 products, each rounded once from float64 and saturated. */
static inline hc_table16 scaled_table16(const double *table, double scale) {
    const __m512d factor = _mm512_set1_pd(scale);
    const __m256 low = _mm512_cvtpd_ps(_mm512_mul_pd(factor, _mm512_loadu_pd(table)));
    const __m256 high = _mm512_cvtpd_ps(_mm512_mul_pd(factor, _mm512_loadu_pd(table + 8)));
    const __m512 all = _mm512_insertf32x8(_mm512_castps256_ps512(low), high, 1), most = _mm512_set1_ps(FLT_MAX);
    return _mm512_max_ps(_mm512_set1_ps(-FLT_MAX), _mm512_min_ps(most, all)); /* for NaN, the second operand */
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
    if (form.beyond) { /* NaN loses its payload and keeps its sign */
        const __m256i magnitude = _mm256_and_si256(half, _mm256_set1_epi16(0x7fff));
        const __mmask16 is_nan = _mm256_cmpgt_epi16_mask(magnitude, _mm256_set1_epi16(form.beyond));
        const __m256i nan =
            _mm256_ternarylogic_epi32(half, _mm256_set1_epi16(0x7e00), _mm256_set1_epi16(-0x8000), 0xec);
        half = _mm256_mask_mov_epi16(half, is_nan, nan);
    }
    const __m512 value = _mm512_cvtph_ps(half);
    return kind == HC_BY_E5M2 ? value : _mm512_mul_ps(value, _mm512_set1_ps(form.factor));
}

/* values[j] = element of code[j], times the scale if `scaled`; finite elements saturate. Reads up to 15 codes too
 * many. */
static inline __attribute__((always_inline)) void simd_elements(const uint8_t *codes, int64_t n, hc_element_kind kind,
                                                                hc_table16 table, const float *large, bool scaled,
                                                                float scale, float *values) {
    const __m512 largest = _mm512_set1_ps(FLT_MAX);
    for (int64_t i = 0; i < n; i += 16) {
        const __m512 element = elements_f32x16(codes + i, kind, table, large);
        __m512 value = element;
        if (scaled) {
            const __m512 product = _mm512_mul_ps(_mm512_set1_ps(scale), element);
            /* for NaN, min and max return their second operand: NaN stays */
            value = _mm512_max_ps(_mm512_set1_ps(-FLT_MAX), _mm512_min_ps(largest, product));
            if (has_no_minus_zero(kind))
                value = _mm512_add_ps(value, _mm512_setzero_ps());
            if (kind == HC_BY_E5M2) /* 0x18: infinities */
                value = _mm512_mask_mov_ps(value, _mm512_fpclass_ps_mask(element, 0x18), product);
        }
        store_first(values + i, n - i, value);
    }
}

/* Factors of n groups in blocks of ggml; n is a multiple of 16. bits = 8: signed integers, times one float16 per 16
 * groups. bits = 6, in pairs of scales and minima: unsigned integers, times one float16 per 8 groups; minima are
 * negated. Returns n, or 0 for any other layout. */
static inline int64_t simd_block_factors(int bits, bool in_pairs, bool is_minimum, const uint8_t *from,
                                         const uint8_t *coarse, int64_t n, float *out) {
    if (bits == 8) {
        for (int64_t i = 0; i < n; i += 16) {
            const __m512i whole = _mm512_cvtepi8_epi32(_mm_loadu_si128((const __m128i *)(from + i)));
            const __m512 d = _mm512_set1_ps(lanes_from_f16(hc_load_u16(coarse + i / 8)));
            _mm512_storeu_ps(out + i, _mm512_mul_ps(d, _mm512_cvtepi32_ps(whole)));
        }
        return n;
    }
    if (bits != 6 || !in_pairs)
        return 0;
    /* number i begins at bit 6 i, so it is in byte 6 i / 8 and the next one; 16 numbers are 12 bytes */
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

#endif
