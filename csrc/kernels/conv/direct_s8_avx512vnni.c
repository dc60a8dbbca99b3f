/* A tile of an integer convolution by vpdpbusd: 12 windows of uint8 by 2 registers of filters, as in
 * gemm_s8_avx512vnni.c: hc_direct_s8_avx512vnni. */
#include "kernels/dots/avx512vnni.h"
#include "kernels/kernel.h"

#include <immintrin.h>

#define INLINE static inline __attribute__((always_inline))

enum { MR = 12, NR = 32 };
typedef uint8_t VALUE;
typedef __m512i vector;

INLINE vector start(const int32_t *init, int half) { return _mm512_loadu_si512(init + 16 * half); }
INLINE vector load_b(const int8_t *panel, int half) { return _mm512_loadu_si512(panel + 64 * half); }
INLINE vector broadcast(const VALUE *x) {
    int32_t values;
    __builtin_memcpy(&values, x, sizeof values);
    return _mm512_set1_epi32(values);
}
INLINE void put(int32_t *c, const int32_t *init, vector low, vector high) {
    (void)init;
    _mm512_storeu_si512(c, low);
    _mm512_storeu_si512(c + 16, high);
}
INLINE void put_half(int32_t *c, const int32_t *init, vector sum) {
    (void)init;
    _mm512_storeu_si512(c, sum);
}

#include "kernels/conv/direct_s8.h"

HC_DIRECT_S8_HALVES(avx512vnni, HC_CASES_12)
