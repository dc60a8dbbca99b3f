/* One filter per channel, of integers: 32 channels at a time, with two taps interleaved for vpmaddwd;
 * hc_depthwise_s16_avx512; kernels/conv/conv.h. AT_ONCE outputs share the loads of filters. Fewer channels are masked. */
#include "kernels/kernel.h"

#include <immintrin.h>

enum { AT_ONCE = 4, LANES = 32 };

#define INLINE __attribute__((always_inline)) static inline

/* kept: the values to be loaded, unless all are. */
INLINE __m512i load(const int16_t *from, const bool whole, __mmask32 kept) {
    return whole ? _mm512_loadu_si512(from) : _mm512_maskz_loadu_epi16(kept, from);
}

INLINE __m512i load_pairs(const int16_t *from, const bool whole, __mmask16 kept) {
    return whole ? _mm512_loadu_si512(from) : _mm512_maskz_loadu_epi32(kept, from);
}

INLINE void answers(const int n, const bool whole, __mmask32 kept, int64_t pairs, const int64_t *tap, int64_t step,
                    const int16_t *x, const int16_t *panel, int64_t ld, int32_t *c, int64_t ldc) {
    const __mmask16 half[2] = {(__mmask16)kept, (__mmask16)(kept >> 16)};
    __m512i sum[AT_ONCE][2]; /* quarters of unpacking: channels 0-3, 8-11, 16-19, 24-27, and those between */
#pragma GCC unroll 4
    for (int i = 0; i < n; i++)
        sum[i][0] = sum[i][1] = _mm512_setzero_si512();
    for (int64_t p = 0; p < pairs; p++, tap += 2, panel += 2 * ld) {
        const __m512i first = load_pairs(panel, whole, half[0]), last = load_pairs(panel + LANES, whole, half[1]);
        const __m512i low = _mm512_shuffle_i32x4(first, last, 0x88), high = _mm512_shuffle_i32x4(first, last, 0xdd);
        const int16_t *a = x + tap[0], *b = x + tap[1];
#pragma GCC unroll 4
        for (int i = 0; i < n; i++) {
            const __m512i even = load(a + i * step, whole, kept), odd = load(b + i * step, whole, kept);
            sum[i][0] = _mm512_add_epi32(sum[i][0], _mm512_madd_epi16(_mm512_unpacklo_epi16(even, odd), low));
            sum[i][1] = _mm512_add_epi32(sum[i][1], _mm512_madd_epi16(_mm512_unpackhi_epi16(even, odd), high));
        }
    }
    const __m512i lower = _mm512_setr_epi64(0, 1, 8, 9, 2, 3, 10, 11);
    const __m512i upper = _mm512_setr_epi64(4, 5, 12, 13, 6, 7, 14, 15);
#pragma GCC unroll 4
    for (int i = 0; i < n; i++) {
        const __m512i first = _mm512_permutex2var_epi64(sum[i][0], lower, sum[i][1]);
        const __m512i last = _mm512_permutex2var_epi64(sum[i][0], upper, sum[i][1]);
        _mm512_mask_storeu_epi32(c + i * ldc, half[0], first);
        _mm512_mask_storeu_epi32(c + i * ldc + LANES / 2, half[1], last);
    }
}

INLINE void rows(const bool whole, __mmask32 kept, int64_t pairs, const int64_t *tap, int64_t step, const int16_t *x,
                 const int16_t *panel, int64_t ld, int64_t n, int32_t *c, int64_t ldc) {
    int64_t i = 0;
    for (; i + AT_ONCE <= n; i += AT_ONCE)
        answers(AT_ONCE, whole, kept, pairs, tap, step, x + i * step, panel, ld, c + i * ldc, ldc);
    for (; i < n; i++)
        answers(1, whole, kept, pairs, tap, step, x + i * step, panel, ld, c + i * ldc, ldc);
}

void hc_depthwise_s16_avx512(int64_t pairs, const int64_t *tap, int64_t step, const int16_t *x, const int16_t *panel,
                             int64_t ld, int64_t n, int64_t count, int32_t *c, int64_t ldc) {
    const __mmask32 all = 0xffffffff;
    if (count < LANES)
        rows(false, (__mmask32)((1u << count) - 1), pairs, tap, step, x, panel, ld, n, c, ldc);
    for (int64_t next = 0; count >= LANES && next < count; next += LANES) {
        const int64_t j = hc_min(next, count - LANES); /* the last ones may repeat some */
        rows(true, all, pairs, tap, step, x + j, panel + 2 * j, ld, n, c + j, ldc);
    }
}
