/* Expansion and compression of lanes, and masks from memory, without two waits:
 *
 *   Zen 5's vexpand and vcompress wait for the register that they write, 5 cycles each, even where nothing of it stays. It is
 *   set to 0 here, without the compiler knowing: 1 cycle each.
 *   gcc 12 makes _load_mask16 two instructions, of which kmovw from a general register takes twice as long. */
#ifndef HC_PLACE_AVX512_H
#define HC_PLACE_AVX512_H

#include <immintrin.h>

static inline __attribute__((always_inline)) __m512i hc_zeros_x512(void) {
    __m512i zeros = _mm512_setzero_si512();
    __asm__("" : "+v"(zeros));
    return zeros;
}

static inline __attribute__((always_inline)) __mmask16 hc_load_mask16(const void *from) {
    __mmask16 mask;
    __asm__("kmovw %1, %0" : "=k"(mask) : "m"(*(const __mmask16 *)from));
    return mask;
}

static inline __attribute__((always_inline)) __m512i hc_expand_x32(__mmask16 places, __m512i next) {
    return _mm512_mask_expand_epi32(hc_zeros_x512(), places, next);
}

static inline __attribute__((always_inline)) __m512i hc_expand_x64(__mmask8 places, __m512i next) {
    return _mm512_mask_expand_epi64(hc_zeros_x512(), places, next);
}

static inline __attribute__((always_inline)) __m512i hc_compress_x32(__mmask16 places, __m512i from) {
    return _mm512_mask_compress_epi32(hc_zeros_x512(), places, from);
}

static inline __attribute__((always_inline)) __m512i hc_compress_x64(__mmask8 places, __m512i from) {
    return _mm512_mask_compress_epi64(hc_zeros_x512(), places, from);
}

#endif
