/* Adds 4 products of bytes to each sum, by vpdpbusd on 256-bit registers. As in kernels/dots/avx512vnni.h, the
 * intrinsic makes gcc 12 copy accumulators. */
#ifndef HC_DOTS_AVXVNNI_H
#define HC_DOTS_AVXVNNI_H

#include <immintrin.h>

static inline __attribute__((always_inline)) __m256i dot(__m256i sum, __m256i a_u8, __m256i b_s8) {
    __asm__("%{vex%} vpdpbusd %2, %1, %0" : "+x"(sum) : "x"(a_u8), "x"(b_s8));
    return sum;
}

#endif
