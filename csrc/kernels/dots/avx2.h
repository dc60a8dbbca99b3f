/* Adds 2 products of int16 to each sum, by vpmaddwd on 256-bit registers. gcc 12 moves all the products of a step before
 * the sums, runs out of registers and spills the accumulators. */
#ifndef HC_DOTS_AVX2_H
#define HC_DOTS_AVX2_H

#include <immintrin.h>

static inline __attribute__((always_inline)) __m256i dot(__m256i sum, __m256i a, __m256i b) {
    __m256i products;
    __asm__("vpmaddwd %3, %2, %1\n\tvpaddd %1, %0, %0" : "+x"(sum), "=&x"(products) : "x"(a), "x"(b));
    return sum;
}

#endif
