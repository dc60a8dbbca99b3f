/* A tile of an integer convolution by vpmaddwd: 6 windows of int16 by 8 filters, which are widened as they are loaded,
 * as in gemm_s8_avx2.c: hc_direct_s8_avx2. */
#include "kernels/dots/avx2.h"
#include "kernels/kernel.h"

#include <immintrin.h>

#define INLINE static inline __attribute__((always_inline))

enum { MR = 6, NR = 8 };
typedef int16_t VALUE;
typedef __m256i vector;

INLINE vector start(const int32_t *init, int half) {
    (void)init, (void)half;
    return _mm256_setzero_si256();
}
INLINE vector load_b(const int8_t *panel, int half) {
    return _mm256_cvtepi8_epi16(_mm_loadu_si128((const __m128i *)(panel + 16 * half)));
}
INLINE vector broadcast(const VALUE *x) {
    return _mm256_broadcastq_epi64(_mm_loadl_epi64((const __m128i *)(const void *)x));
}
INLINE void put(int32_t *c, const int32_t *init, vector low, vector high) {
    const __m256i dots = _mm256_permute4x64_epi64(_mm256_hadd_epi32(low, high), 0xd8);
    _mm256_storeu_si256((__m256i *)c, _mm256_add_epi32(_mm256_loadu_si256((const __m256i *)init), dots));
}
INLINE void put_half(int32_t *c, const int32_t *init, vector sum) { put(c, init, sum, sum); } /* never called */

#include "kernels/conv/direct_s8.h"

HC_DIRECT_S8(avx2, HC_CASES_6)
