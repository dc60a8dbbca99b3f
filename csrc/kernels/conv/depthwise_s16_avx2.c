/* One filter per channel, of integers: 16 channels at a time, with two taps interleaved for vpmaddwd;
 * hc_depthwise_s16_avx2; kernels/conv/conv.h. AT_ONCE outputs share the loads of filters. */
#include "kernels/kernel.h"

#include <immintrin.h>

enum { AT_ONCE = 4, LANES = 16 };

__attribute__((always_inline)) static inline void answers(const int n, int64_t pairs, const int64_t *tap, int64_t step,
                                                          const int16_t *x, const int16_t *panel, int64_t ld,
                                                          int32_t *c, int64_t ldc) {
    __m256i sum[AT_ONCE][2]; /* channels 0-3 and 8-11, 4-7 and 12-15, the order of unpacking */
#pragma GCC unroll 4
    for (int i = 0; i < n; i++)
        sum[i][0] = sum[i][1] = _mm256_setzero_si256();
    for (int64_t p = 0; p < pairs; p++, tap += 2, panel += 2 * ld) {
        const __m256i first = _mm256_loadu_si256((const __m256i *)panel);
        const __m256i last = _mm256_loadu_si256((const __m256i *)(panel + 16));
        const __m256i low = _mm256_permute2x128_si256(first, last, 0x20);
        const __m256i high = _mm256_permute2x128_si256(first, last, 0x31);
        const int16_t *a = x + tap[0], *b = x + tap[1];
#pragma GCC unroll 4
        for (int i = 0; i < n; i++) {
            const __m256i even = _mm256_loadu_si256((const __m256i *)(a + i * step));
            const __m256i odd = _mm256_loadu_si256((const __m256i *)(b + i * step));
            sum[i][0] = _mm256_add_epi32(sum[i][0], _mm256_madd_epi16(_mm256_unpacklo_epi16(even, odd), low));
            sum[i][1] = _mm256_add_epi32(sum[i][1], _mm256_madd_epi16(_mm256_unpackhi_epi16(even, odd), high));
        }
    }
#pragma GCC unroll 4
    for (int i = 0; i < n; i++) {
        _mm256_storeu_si256((__m256i *)(c + i * ldc), _mm256_permute2x128_si256(sum[i][0], sum[i][1], 0x20));
        _mm256_storeu_si256((__m256i *)(c + i * ldc + 8), _mm256_permute2x128_si256(sum[i][0], sum[i][1], 0x31));
    }
}

#include "kernels/conv/depthwise_s16.h"

HC_DEPTHWISE_S16(avx2)
