/* Adds 2 products of int16 to each sum, by vpmaddwd on 512-bit registers. As in kernels/dots/avx2.h, gcc 12 spills the
 * accumulators otherwise. */
#ifndef HC_DOTS_AVX512_H
#define HC_DOTS_AVX512_H

#include <immintrin.h>

static inline __attribute__((always_inline)) __m512i dot(__m512i sum, __m512i a, __m512i b) {
    __m512i products;
    __asm__("vpmaddwd %3, %2, %1\n\tvpaddd %1, %0, %0" : "+v"(sum), "=&v"(products) : "v"(a), "v"(b));
    return sum;
}

#endif
