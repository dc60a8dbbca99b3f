/* One filter per channel, of integers: 32 channels at a time, with two taps interleaved for vpmaddwd;
 * hc_depthwise_s16_avx512; kernels/conv/conv.h. AT_ONCE outputs share the loads of filters. Fewer channels are those of
 * hc_depthwise_s16_avx2. */
#include "kernels/kernel.h"

#include <immintrin.h>

enum { AT_ONCE = 4, LANES = 32 };

__attribute__((always_inline)) static inline void answers(const int n, int64_t pairs, const int64_t *tap, int64_t step,
                                                          const int16_t *x, const int16_t *panel, int64_t ld,
                                                          int32_t *c, int64_t ldc) {
    __m512i sum[AT_ONCE][2]; /* quarters of unpacking: channels 0-3, 8-11, 16-19, 24-27, and those between */
#pragma GCC unroll 4
    for (int i = 0; i < n; i++)
        sum[i][0] = sum[i][1] = _mm512_setzero_si512();
    for (int64_t p = 0; p < pairs; p++, tap += 2, panel += 2 * ld) {
        const __m512i first = _mm512_loadu_si512(panel), last = _mm512_loadu_si512(panel + LANES);
        const __m512i low = _mm512_shuffle_i32x4(first, last, 0x88), high = _mm512_shuffle_i32x4(first, last, 0xdd);
        const int16_t *a = x + tap[0], *b = x + tap[1];
#pragma GCC unroll 4
        for (int i = 0; i < n; i++) {
            const __m512i even = _mm512_loadu_si512(a + i * step), odd = _mm512_loadu_si512(b + i * step);
            sum[i][0] = _mm512_add_epi32(sum[i][0], _mm512_madd_epi16(_mm512_unpacklo_epi16(even, odd), low));
            sum[i][1] = _mm512_add_epi32(sum[i][1], _mm512_madd_epi16(_mm512_unpackhi_epi16(even, odd), high));
        }
    }
    const __m512i lower = _mm512_setr_epi64(0, 1, 8, 9, 2, 3, 10, 11);
    const __m512i upper = _mm512_setr_epi64(4, 5, 12, 13, 6, 7, 14, 15);
#pragma GCC unroll 4
    for (int i = 0; i < n; i++) {
        _mm512_storeu_si512(c + i * ldc, _mm512_permutex2var_epi64(sum[i][0], lower, sum[i][1]));
        _mm512_storeu_si512(c + i * ldc + LANES / 2, _mm512_permutex2var_epi64(sum[i][0], upper, sum[i][1]));
    }
}

void hc_depthwise_s16_avx512(int64_t pairs, const int64_t *tap, int64_t step, const int16_t *x, const int16_t *panel,
                             int64_t ld, int64_t n, int64_t count, int32_t *c, int64_t ldc) {
    if (count < LANES) {
        hc_depthwise_s16_avx2(pairs, tap, step, x, panel, ld, n, count, c, ldc);
        return;
    }
    for (int64_t next = 0; next < count; next += LANES) {
        const int64_t j = hc_min(next, count - LANES); /* the last ones may repeat some */
        int64_t i = 0;
        for (; i + AT_ONCE <= n; i += AT_ONCE)
            answers(AT_ONCE, pairs, tap, step, x + i * step + j, panel + 2 * j, ld, c + i * ldc + j, ldc);
        for (; i < n; i++)
            answers(1, pairs, tap, step, x + i * step + j, panel + 2 * j, ld, c + i * ldc + j, ldc);
    }
}
