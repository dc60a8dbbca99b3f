/* AVX-512 parts of gemv_groups and gemv_rows: codes in 32-bit words to float32.
 *
 * A nibble becomes a float by tables: at bit 0 by vpermps (16 entries; it reads the low 4 bits of each index), at bit
 * 16, where all values are bfloat16, by vpermw with the lower halves zeroed (a bfloat16 is the upper half of a float).
 * A byte becomes mantissa bits of 2^(23 - bit), from which 2^(23 - bit) + zero is subtracted, exactly; for bytes that
 * are floats see gemv_tail.h; callers handle infinity and NaN.
 *
 * 16 groups are in lanes, so words of 16 groups are transposed from [group][word] to [word][group].
 */
#ifndef HC_GEMV_AVX512_H
#define HC_GEMV_AVX512_H

#include "kernels/gemv/gemv_tail.h"

#include <immintrin.h>

#define INLINE static inline __attribute__((always_inline))

/* How codes are stored: 4 bits with one table of bfloat16 values, with any tables, 8 bits, floats of 8, 16 and 32
 * bits. */
typedef enum {
    CODES_SHORT,
    CODES_LONG,
    CODES_BYTES,
    CODES_FLOAT8,
    CODES_FLOAT16,
    CODES_BFLOAT16,
    CODES_FLOATS
} hc_code_kind;

INLINE int bits_of(hc_code_kind kind) {
    return kind == CODES_FLOATS                              ? 32
           : kind == CODES_FLOAT16 || kind == CODES_BFLOAT16 ? 16
           : kind == CODES_BYTES || kind == CODES_FLOAT8     ? 8
                                                             : 4;
}

typedef struct {
    __m512 table[HC_GEMV_ROWS]; /* nibbles: c by code */
    __m512i short_table;        /* upper halves of table[0], 32 entries: bit 4 of the index is ignored */
    /* bytes at bit 0 and 8: an exponent above the flipped code; mask of the bits of a word that are used */
    __m512i field[2], mask[2];
    __m512 offset[2];
    __m512i shift, kept, special; /* floats of 8 bits; special_bits of each byte */
    __m512 factor;
} hc_decoder;

INLINE hc_decoder make_decoder(const hc_gemv_floats_args *args) {
    hc_decoder d;
    const float zero = args->zeros[0] ? 0 : args->zero, unit = args->unit;
    const int unit_exponent = (int)(hc_f32_bits(unit) >> 23) - 127;
    const __m512i codes = _mm512_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15);
    const __m512i integers = _mm512_xor_si512(codes, _mm512_set1_epi32(args->flip));
    for (int r = 0; r < HC_GEMV_ROWS; r++)
        d.table[r] = args->table[r] ? _mm512_loadu_ps(args->table[r])
                                    : _mm512_sub_ps(_mm512_cvtepi32_ps(integers), _mm512_set1_ps(zero));
    const __m256i halves = _mm512_cvtepi32_epi16(_mm512_srli_epi32(_mm512_castps_si512(d.table[0]), 16));
    d.short_table = _mm512_broadcast_i64x4(halves);
    for (int p = 0; p < 2; p++) {
        const __m512i exponent = _mm512_set1_epi32((150 - 8 * p + unit_exponent) << 23);
        d.mask[p] = _mm512_set1_epi32(0xff << 8 * p);
        d.field[p] = _mm512_xor_si512(exponent, _mm512_set1_epi32(args->flip << 8 * p));
        d.offset[p] = _mm512_add_ps(_mm512_castsi512_ps(exponent), _mm512_set1_ps(zero * unit));
    }
    const hc_float8 float8 = hc_float8_of(args->exponent_bits);
    d.shift = _mm512_set1_epi32(float8.shift);
    d.kept = _mm512_set1_epi32((int)float8.kept);
    d.factor = _mm512_set1_ps(float8.factor);
    d.special = _mm512_set1_epi8((char)args->special_bits);
    return d;
}

INLINE hc_code_kind code_kind(const hc_gemv_floats_args *args, const hc_decoder *d) {
    if (args->bits == 16)
        return args->exponent_bits == 5 ? CODES_FLOAT16 : CODES_BFLOAT16;
    if (args->bits != 4)
        return args->bits == 32 ? CODES_FLOATS : args->exponent_bits ? CODES_FLOAT8 : CODES_BYTES;
    const __m512i table = _mm512_castps_si512(d->table[0]);
    bool is_short = _mm512_test_epi32_mask(table, _mm512_set1_epi32(0xffff)) == 0;
    for (int r = 1; r < HC_GEMV_ROWS; r++)
        is_short = is_short && _mm512_cmpneq_epi32_mask(table, _mm512_castps_si512(d->table[r])) == 0;
    return is_short ? CODES_SHORT : CODES_LONG;
}

/* Floats of 8 bits that are infinite or NaN. */
INLINE __mmask64 special_bytes(const hc_decoder *d, __m512i words) {
    const __m512i missing = _mm512_andnot_si512(words, d->special);
    return _mm512_testn_epi8_mask(missing, missing);
}

/* Code j of each word of row r. */
INLINE __m512 code_f32x16(const hc_decoder *d, int r, __m512i words, hc_code_kind kind, int j) {
    if (kind == CODES_FLOATS)
        return _mm512_castsi512_ps(words);
    if (kind == CODES_LONG)
        return _mm512_permutexvar_ps(_mm512_srli_epi32(words, 4 * j), d->table[r]);
    if (kind == CODES_SHORT) { /* compilers share the shifts */
        const __m512i shifted = _mm512_srli_epi32(words, 4 * (j % 4));
        return j < 4 ? _mm512_permutexvar_ps(shifted, d->table[0])
                     : _mm512_castsi512_ps(_mm512_maskz_permutexvar_epi16(0xaaaaaaaau, shifted, d->short_table));
    }
    if (kind == CODES_FLOAT8) {
        const __m512i top = j == 3 ? words : _mm512_slli_epi32(words, 24 - 8 * j);
        const __m512i field = _mm512_and_si512(_mm512_srav_epi32(top, d->shift), d->kept);
        return _mm512_mul_ps(_mm512_castsi512_ps(field), d->factor);
    }
    const __m512i shifted = j < 2 ? words : _mm512_srli_epi32(words, 16);
    const __m512i field =
        _mm512_ternarylogic_epi32(shifted, d->mask[j % 2], d->field[j % 2], 0x6a); /* (w & mask) ^ f */
    return _mm512_sub_ps(_mm512_castsi512_ps(field), d->offset[j % 2]);
}

enum { CHUNK = 16 }; /* words of a group that are transposed at once */

/* n registers hold [16 groups][n words]; each stage separates even from odd words. */
INLINE void part_words(__m512i *a, int n) {
    const __m512i even = _mm512_setr_epi32(0, 2, 4, 6, 8, 10, 12, 14, 16, 18, 20, 22, 24, 26, 28, 30);
    const __m512i odd = _mm512_setr_epi32(1, 3, 5, 7, 9, 11, 13, 15, 17, 19, 21, 23, 25, 27, 29, 31);
    __m512i b[CHUNK];
#pragma GCC unroll 4
    for (int parts = 1; parts < n; parts *= 2) { /* part q holds the words congruent to q modulo parts */
        const int size = n / parts, half = size / 2;
#pragma GCC unroll 8
        for (int i = 0; i < n / 2; i++) {
            const int q = i / half, j = i % half;
            b[q * half + j] = _mm512_permutex2var_epi32(a[q * size + 2 * j], even, a[q * size + 2 * j + 1]);
            b[(q + parts) * half + j] = _mm512_permutex2var_epi32(a[q * size + 2 * j], odd, a[q * size + 2 * j + 1]);
        }
#pragma GCC unroll 16
        for (int i = 0; i < n; i++)
            a[i] = b[i];
    }
}

/* A block whose groups have 2, 4 or 8 words: [group][word] -> [word][group]; no byte after its last group is read. */
INLINE void transpose_block(const uint8_t *codes, int words, int64_t groups, __m512i *out) {
    for (int i = 0; i < words; i++) {
        const int64_t left = groups * words - 16 * i;
        const __mmask16 mask = left >= 16 ? 0xffff : left <= 0 ? 0 : (__mmask16)((1u << left) - 1);
        out[i] = groups == 16 ? _mm512_loadu_si512(codes + 64 * i) : _mm512_maskz_loadu_epi32(mask, codes + 64 * i);
    }
    if (words == 2) { /* written out, so that these stay in registers */
        const __m512i a = out[0], b = out[1];
        out[0] = _mm512_permutex2var_epi32(
            a, _mm512_setr_epi32(0, 2, 4, 6, 8, 10, 12, 14, 16, 18, 20, 22, 24, 26, 28, 30), b);
        out[1] = _mm512_permutex2var_epi32(
            a, _mm512_setr_epi32(1, 3, 5, 7, 9, 11, 13, 15, 17, 19, 21, 23, 25, 27, 29, 31), b);
    } else if (words == 4) {
        const __m512i even = _mm512_setr_epi32(0, 2, 4, 6, 8, 10, 12, 14, 16, 18, 20, 22, 24, 26, 28, 30);
        const __m512i odd = _mm512_setr_epi32(1, 3, 5, 7, 9, 11, 13, 15, 17, 19, 21, 23, 25, 27, 29, 31);
        const __m512i a = _mm512_permutex2var_epi32(out[0], even, out[1]);
        const __m512i b = _mm512_permutex2var_epi32(out[2], even, out[3]);
        const __m512i c = _mm512_permutex2var_epi32(out[0], odd, out[1]);
        const __m512i d = _mm512_permutex2var_epi32(out[2], odd, out[3]);
        out[0] = _mm512_permutex2var_epi32(a, even, b);
        out[1] = _mm512_permutex2var_epi32(c, even, d);
        out[2] = _mm512_permutex2var_epi32(a, odd, b);
        out[3] = _mm512_permutex2var_epi32(c, odd, d);
    } else {
        part_words(out, words);
    }
}

/* Scales g .. g + 15 as float32, g a multiple of 16; those outside of the mask are not touched. */
INLINE __m512 load_scales(const uint8_t *scales, int bits, int64_t g, __mmask16 mask) {
    const uint8_t *from = scales + g * bits / 8;
    if (bits == 32)
        return _mm512_maskz_loadu_ps(mask, from);
    if (bits == 16)
        return _mm512_cvtph_ps(_mm256_maskz_loadu_epi16(mask, from));
    const __m512i lanes = _mm512_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15);
    const __mmask16 exist = (__mmask16)_pext_u32(mask, 0x5555); /* the mask has no gaps */
    const __m128i bytes = mask == 0xffff ? _mm_loadl_epi64((const __m128i *)from) : _mm_maskz_loadu_epi8(exist, from);
    const __m512i words = _mm512_permutexvar_epi32(_mm512_srli_epi32(lanes, 3), _mm512_castsi128_si512(bytes));
    /* vpsrlvd wants the shift modulo 32, vpermps reads the low four bits */
    const __m512i shifts = _mm512_and_si512(_mm512_slli_epi32(lanes, 2), _mm512_set1_epi32(28));
    return _mm512_permutexvar_ps(_mm512_srlv_epi32(words, shifts), _mm512_cvtepi32_ps(lanes));
}

#endif
