/* A tile of an integer convolution without VNNI: 12 windows of int16 by 16 filters, which are widened as they are
 * loaded, as in gemm_s8_avx512.c: hc_direct_s8_avx512. */
#include "kernels/dots/avx512.h"
#include "kernels/kernel.h"

#include <immintrin.h>

#define INLINE static inline __attribute__((always_inline))

enum { MR = 12, NR = 16 };
typedef int16_t VALUE;
typedef __m512i vector;

INLINE vector start(const int32_t *init, int half) {
    (void)init, (void)half;
    return _mm512_setzero_si512();
}
INLINE vector load_b(const int8_t *panel, int half) {
    return _mm512_cvtepi8_epi16(_mm256_loadu_si256((const __m256i *)(panel + 32 * half)));
}
INLINE vector broadcast(const VALUE *x) {
    return _mm512_broadcastq_epi64(_mm_loadl_epi64((const __m128i *)(const void *)x));
}
INLINE void put(int32_t *c, const int32_t *init, vector low, vector high) {
    const __m512i even = _mm512_set_epi32(30, 28, 26, 24, 22, 20, 18, 16, 14, 12, 10, 8, 6, 4, 2, 0);
    const __m512i odd = _mm512_add_epi32(even, _mm512_set1_epi32(1));
    const __m512i dots =
        _mm512_add_epi32(_mm512_permutex2var_epi32(low, even, high), _mm512_permutex2var_epi32(low, odd, high));
    _mm512_storeu_si512(c, _mm512_add_epi32(_mm512_loadu_si512(init), dots));
}
INLINE void put_half(int32_t *c, const int32_t *init, vector sum) { put(c, init, sum, sum); } /* never called */

#include "kernels/conv/direct_s8.h"

HC_DIRECT_S8(avx512, HC_CASES_12)
