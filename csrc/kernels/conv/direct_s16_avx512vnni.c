/* A tile of int16 by vpdpwssd: 14 rows by 32 columns, two values of k at a time: hc_direct_s16_avx512vnni. */
#include "kernels/kernel.h"

#include <immintrin.h>

#define INLINE static inline __attribute__((always_inline))

enum { MR = 14, NR = 32 };

/* As in direct_s8_avx512vnni.c: sums stay in registers. */
INLINE __m512i dot(__m512i sum, __m512i x, __m512i b) {
    __asm__("vpdpwssd %2, %1, %0" : "+v"(sum) : "v"(x), "v"(b));
    return sum;
}

INLINE void tile(const int n, int64_t pairs, const int16_t *const *rows, const int16_t *panel, int32_t *c,
                 int64_t ldc) {
    __m512i sum[MR][2];
#pragma GCC unroll 16
    for (int i = 0; i < n; i++)
        sum[i][0] = sum[i][1] = _mm512_setzero_si512();
    for (int64_t k = 0; k < pairs; k++, panel += 2 * NR) {
        const __m512i low = _mm512_loadu_si512(panel);
        const __m512i high = _mm512_loadu_si512(panel + NR);
#pragma GCC unroll 16
        for (int i = 0; i < n; i++) {
            int32_t pair;
            __builtin_memcpy(&pair, rows[i] + 2 * k, sizeof pair);
            const __m512i values = _mm512_set1_epi32(pair);
            sum[i][0] = dot(sum[i][0], values, low);
            sum[i][1] = dot(sum[i][1], values, high);
        }
    }
#pragma GCC unroll 16
    for (int i = 0; i < n; i++) {
        _mm512_storeu_si512(c + i * ldc, sum[i][0]);
        _mm512_storeu_si512(c + i * ldc + NR / 2, sum[i][1]);
    }
}

#define HC_CASE(n)                                                                                                     \
    case n:                                                                                                            \
        tile(n, pairs, rows, panel, c, ldc);                                                                           \
        break;

#define HC_CASES_7 HC_CASE(1) HC_CASE(2) HC_CASE(3) HC_CASE(4) HC_CASE(5) HC_CASE(6) HC_CASE(7)
#define HC_CASES HC_CASES_7 HC_CASE(8) HC_CASE(9) HC_CASE(10) HC_CASE(11) HC_CASE(12) HC_CASE(13) HC_CASE(14)

void hc_direct_s16_avx512vnni(int64_t pairs, const int16_t *const *rows, const int16_t *panel, int n_rows, int32_t *c,
                              int64_t ldc) {
    switch (n_rows) { HC_CASES }
}
