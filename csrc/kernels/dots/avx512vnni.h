/* Adds 4 products of bytes to each sum, by vpdpbusd on 512-bit registers. gcc 12 copies the accumulator of
 * _mm512_dpbusd_epi32 to another register and back, at a third of the speed. */
#ifndef HC_DOTS_AVX512VNNI_H
#define HC_DOTS_AVX512VNNI_H

#include <immintrin.h>
#include <stdint.h>

static inline __attribute__((always_inline)) __m512i dot(__m512i sum, __m512i a_u8, __m512i b_s8) {
    __asm__("vpdpbusd %2, %1, %0" : "+v"(sum) : "v"(a_u8), "v"(b_s8));
    return sum;
}

/* Adds 2 products of int16 to each sum, by vpdpwssd. */
static inline __attribute__((always_inline)) __m512i dot_pairs(__m512i sum, __m512i a_s16, __m512i b_s16) {
    __asm__("vpdpwssd %2, %1, %0" : "+v"(sum) : "v"(a_s16), "v"(b_s16));
    return sum;
}

/* The same 4 bytes of b for each sum. */
static inline __attribute__((always_inline)) __m512i dot_each(__m512i sum, __m512i a_u8, const int8_t *b_s8) {
    __asm__("vpdpbusd %2%{1to16%}, %1, %0" : "+v"(sum) : "v"(a_u8), "m"(*(const int8_t (*)[4])b_s8));
    return sum;
}

#endif
