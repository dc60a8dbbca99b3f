/* A tile of int16 by vpmaddwd: 6 rows by 16 columns, two values of k at a time: hc_direct_s16_avx2. */
#include "kernels/kernel.h"

#include <immintrin.h>

#define INLINE static inline __attribute__((always_inline))

enum { MR = 6, NR = 16 };

/* As in direct_s8_avx2.c: sums stay in registers. */
INLINE __m256i dot(__m256i sum, __m256i x, __m256i b) {
    __m256i products;
    __asm__("vpmaddwd %3, %2, %1\n\tvpaddd %1, %0, %0" : "+x"(sum), "=&x"(products) : "x"(x), "x"(b));
    return sum;
}

INLINE void tile(const int n, int64_t pairs, const int16_t *const *rows, const int16_t *panel, int32_t *c,
                 int64_t ldc) {
    __m256i sum[MR][2];
#pragma GCC unroll 6
    for (int i = 0; i < n; i++)
        sum[i][0] = sum[i][1] = _mm256_setzero_si256();
    for (int64_t k = 0; k < pairs; k++, panel += 2 * NR) {
        const __m256i low = _mm256_loadu_si256((const __m256i *)(const void *)panel);
        const __m256i high = _mm256_loadu_si256((const __m256i *)(const void *)(panel + NR));
#pragma GCC unroll 6
        for (int i = 0; i < n; i++) {
            int32_t pair;
            __builtin_memcpy(&pair, rows[i] + 2 * k, sizeof pair);
            const __m256i values = _mm256_set1_epi32(pair);
            sum[i][0] = dot(sum[i][0], values, low);
            sum[i][1] = dot(sum[i][1], values, high);
        }
    }
#pragma GCC unroll 6
    for (int i = 0; i < n; i++) {
        _mm256_storeu_si256((__m256i *)(void *)(c + i * ldc), sum[i][0]);
        _mm256_storeu_si256((__m256i *)(void *)(c + i * ldc + NR / 2), sum[i][1]);
    }
}

#define HC_CASE(n)                                                                                                     \
    case n:                                                                                                            \
        tile(n, pairs, rows, panel, c, ldc);                                                                           \
        break;

void hc_direct_s16_avx2(int64_t pairs, const int16_t *const *rows, const int16_t *panel, int n_rows, int32_t *c,
                        int64_t ldc) {
    switch (n_rows) { HC_CASE(1) HC_CASE(2) HC_CASE(3) HC_CASE(4) HC_CASE(5) HC_CASE(6) }
}
