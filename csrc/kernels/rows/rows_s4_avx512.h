/* Shared by the kernels that read 4-bit codes as they are stored: conversion of codes with or without scales to bytes,
 * 64 bytes at a time. u = code + 8 is (stored & 15) ^ 8. Two u of one group are a 16-bit number, low + 256 high. The
 * bytes of its product with the scale are the two products.
 */
#ifndef HC_ROWS_S4_AVX512_H
#define HC_ROWS_S4_AVX512_H

#include "kernels/rows/rows_s8_avx512.h"

#include <string.h>

enum { PLAIN = 0, SPAN = 1024, GROUPS = SPAN / 8 }; /* bytes of codes whose scales are expanded to bytes at once */

typedef struct {
    _Alignas(64) uint8_t scale[GROUPS + 8];
    _Alignas(64) uint8_t added[GROUPS + 8];
} hc_scales;

/* Scales of up to SPAN bytes of codes. */
INLINE void expand(const uint8_t *scales, const int words, int64_t n, hc_scales *to) {
    const vector nibbles = _mm512_set1_epi8(15);
    const vector first = _mm512_setr_epi64(0, 1, 8, 9, 2, 3, 10, 11),
                 last = _mm512_setr_epi64(4, 5, 12, 13, 6, 7, 14, 15);
    const vector added = _mm512_broadcast_i32x4(
        _mm_setr_epi8(-128, 120, 112, 104, 96, 88, 80, 72, 64, 56, 48, 40, 32, 24, 16, 8)); /* 128 - 8 scale */
    const vector stored =
        _mm512_maskz_loadu_epi8(_bzhi_u64(~0ull, (unsigned)((n + 8 * words - 1) / (8 * words))), scales);
    const vector low = _mm512_and_si512(stored, nibbles);
    const vector high = _mm512_and_si512(_mm512_srli_epi16(stored, 4), nibbles);
    const vector even = _mm512_unpacklo_epi8(low, high), odd = _mm512_unpackhi_epi8(low, high);
    const vector a = _mm512_permutex2var_epi64(even, first, odd), b = _mm512_permutex2var_epi64(even, last, odd);
    _mm512_store_si512(to->scale, a);
    _mm512_store_si512(to->scale + 64, b);
    _mm512_store_si512(to->added, _mm512_shuffle_epi8(added, a));
    _mm512_store_si512(to->added + 64, _mm512_shuffle_epi8(added, b));
}

/* The numbers of the groups of 64 bytes of codes, each copied to its bytes, or to the lower half of its 16-bit
 * lanes. */
INLINE vector spread(const uint8_t *from, const int words, bool to_bytes) {
    const vector lane = _mm512_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15);
    const vector group = _mm512_srli_epi32(lane, words == 2 ? 1 : words == 4 ? 2 : 3);
    const vector places = to_bytes ? _mm512_mullo_epi32(group, _mm512_set1_epi32(0x01010101))
                                   : _mm512_add_epi32(_mm512_mullo_epi32(group, _mm512_set1_epi32(0x00010001)),
                                                      _mm512_set1_epi32((int)0x80008000));
    int64_t eight;
    memcpy(&eight, from, sizeof eight);
    return _mm512_shuffle_epi8(_mm512_set1_epi64(eight), places);
}

/* n bytes of codes in the order of dot: even columns, then odd columns. */
INLINE void load_codes(const uint8_t *w, int64_t n, const hc_scales *scales, int64_t group, const int words,
                       vector codes[2]) {
    const vector nibbles = _mm512_set1_epi8(15), flip = _mm512_set1_epi8(8);
    vector stored = n == 64 ? _mm512_loadu_si512(w) : _mm512_maskz_loadu_epi8(((__mmask64)1 << n) - 1, w);
    __asm__("" : "+v"(stored));                                        /* otherwise gcc loads them twice */
    codes[0] = _mm512_ternarylogic_epi32(stored, nibbles, flip, 0x6a); /* (stored & 15) ^ 8 */
    codes[1] = _mm512_ternarylogic_epi32(_mm512_srli_epi16(stored, 4), nibbles, flip, 0x6a);
    if (words == PLAIN)
        return;
    const vector scale = spread(scales->scale + group, words, false);
    const vector added = spread(scales->added + group, words, true);
    codes[0] = _mm512_add_epi8(_mm512_mullo_epi16(codes[0], scale), added);
    codes[1] = _mm512_add_epi8(_mm512_mullo_epi16(codes[1], scale), added);
}

#endif
