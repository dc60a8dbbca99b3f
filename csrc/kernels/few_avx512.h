/* AVX-512 parts of few_groups and few_rows: codes of 4 or 8 bits in 32-bit words to float32, and words of 16 groups
 * turned from [group][word] into [word][group].
 *
 * A nibble becomes a float by tables: at bit 0 by vpermps (16 entries; it reads the low 4 bits of each index), at
 * bit 16 by vpermw with the lower halves zeroed (a bfloat16 is the upper half of a float). A byte becomes mantissa
 * bits of 2^(23 - bit), from which 2^(23 - bit) + zero is subtracted, exactly.
 */
#ifndef HC_FEW_AVX512_H
#define HC_FEW_AVX512_H

#include "base/base.h"

#include <immintrin.h>

#define INLINE static inline __attribute__((always_inline))
enum { CHUNK = 16 }; /* words of a group turned at once */

typedef struct {
    __m512 table;              /* nibbles: c by code */
    __m512i table_bf16;        /* the same, 32 entries: bit 4 of the index is ignored */
    __m512i field[2], mask[2]; /* bytes at bit 0 and 8: an exponent above the flipped code; what is kept of a word */
    __m512 offset[2];
} hc_decoder;

INLINE hc_decoder make_decoder(int bits, int flip, float zero) {
    hc_decoder d;
    const __m512i flips = _mm512_set1_epi32(flip);
    const __m512i codes = _mm512_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15);
    if (bits == 4) {
        d.table = _mm512_sub_ps(_mm512_cvtepi32_ps(_mm512_xor_si512(codes, flips)), _mm512_set1_ps(zero));
        const __m256i halves = _mm512_cvtepi32_epi16(_mm512_srli_epi32(_mm512_castps_si512(d.table), 16));
        d.table_bf16 = _mm512_broadcast_i64x4(halves);
    }
    for (int p = 0; p < 2; p++) {
        const __m512i exponent = _mm512_set1_epi32((150 - 8 * p) << 23);
        d.mask[p] = _mm512_set1_epi32(0xff << 8 * p);
        d.field[p] = _mm512_xor_si512(exponent, _mm512_set1_epi32(flip << 8 * p));
        d.offset[p] = _mm512_add_ps(_mm512_castsi512_ps(exponent), _mm512_set1_ps(zero));
    }
    return d;
}

/* Words shifted right so that every code stands where it can be taken. */
typedef struct {
    __m512i shifted[4];
} hc_words;

INLINE hc_words make_words(__m512i words, int bits) {
    hc_words w = {{words, words, words, words}};
    if (bits == 4)
        for (int i = 1; i < 4; i++)
            w.shifted[i] = _mm512_srli_epi32(words, 4 * i);
    else
        w.shifted[1] = _mm512_srli_epi32(words, 16);
    return w;
}

INLINE __m512 code_f32x16(const hc_decoder *d, const hc_words *w, int bits, int j) {
    if (bits == 4 && j < 4)
        return _mm512_permutexvar_ps(w->shifted[j], d->table);
    if (bits == 4)
        return _mm512_castsi512_ps(_mm512_maskz_permutexvar_epi16(0xaaaaaaaau, w->shifted[j - 4], d->table_bf16));
    const __m512i field =
        _mm512_ternarylogic_epi32(w->shifted[j / 2], d->mask[j % 2], d->field[j % 2], 0x6a); /* (w & mask) ^ field */
    return _mm512_sub_ps(_mm512_castsi512_ps(field), d->offset[j % 2]);
}

/* n registers hold [16 groups][n words]; each stage parts even from odd words. */
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

/* A block whose groups have 2, 4 or 8 words: [group][word] -> [word][group]; no byte behind its last group is read. */
INLINE void turn_block(const uint8_t *codes, int words, int64_t groups, __m512i *out) {
    for (int i = 0; i < words; i++) {
        const int64_t left = groups * words - 16 * i;
        const __mmask16 mask = left >= 16 ? 0xffff : left <= 0 ? 0 : (__mmask16)((1u << left) - 1);
        out[i] = groups == 16 ? _mm512_loadu_si512(codes + 64 * i) : _mm512_maskz_loadu_epi32(mask, codes + 64 * i);
    }
    if (words == 2) { /* spelled out: these stay in registers */
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

/* The same for n words from `first` on of groups of any length. */
static inline void turn_chunk(const uint8_t *codes, int64_t words, int64_t first, int64_t n, int64_t groups,
                              __m512i *out) {
    if (words == 8) {
        turn_block(codes, 8, groups, out);
    } else if (n == CHUNK) {
        for (int i = 0; i < CHUNK; i++)
            out[i] = i < groups ? _mm512_loadu_si512(codes + 4 * (i * words + first)) : _mm512_setzero_si512();
        part_words(out, CHUNK);
    } else {
        const __m512i lanes = _mm512_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15);
        const __m512i places = _mm512_mullo_epi32(_mm512_set1_epi32((int)words), lanes);
        const __mmask16 mask = (__mmask16)((1u << groups) - 1);
        for (int64_t h = 0; h < n; h++)
            out[h] = _mm512_mask_i32gather_epi32(_mm512_setzero_si512(), mask, places, codes + 4 * (first + h), 4);
    }
}

#endif
