/* A tile of an integer convolution by vpdpbusd on 256-bit registers: 6 windows of uint8 by 2 registers of filters, as
 * in gemm_s8_avxvnni.c: hc_direct_s8_avxvnni. */
#include "kernels/dots/avxvnni.h"
#include "kernels/kernel.h"

#include <immintrin.h>

#define INLINE static inline __attribute__((always_inline))

enum { MR = 6, NR = 16 };
typedef uint8_t VALUE;
typedef __m256i vector;

INLINE vector start(const int32_t *init, int half) { return _mm256_loadu_si256((const __m256i *)(init + 8 * half)); }
INLINE vector load_b(const int8_t *panel, int half) { return _mm256_loadu_si256((const __m256i *)(panel + 32 * half)); }
INLINE vector broadcast(const VALUE *x) {
    int32_t values;
    __builtin_memcpy(&values, x, sizeof values);
    return _mm256_set1_epi32(values);
}
INLINE void put(int32_t *c, const int32_t *init, vector low, vector high) {
    (void)init;
    _mm256_storeu_si256((__m256i *)c, low);
    _mm256_storeu_si256((__m256i *)(c + 8), high);
}
INLINE void put_half(int32_t *c, const int32_t *init, vector sum) {
    (void)init;
    _mm256_storeu_si256((__m256i *)c, sum);
}

#include "kernels/conv/direct_s8.h"

HC_DIRECT_S8_HALVES(avxvnni, HC_CASES_6)
