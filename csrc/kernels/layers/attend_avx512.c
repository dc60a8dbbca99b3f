/* hc_attend_avx512: kernels/layers/layers.h. */
#define HC_FLOATS 16
#define HC_DOTS 16
#include "kernels/kernel.h"

#include <immintrin.h>

#define QUARTERS(a, b, low, high) _mm512_add_ps(_mm512_shuffle_f32x4(a, b, low), _mm512_shuffle_f32x4(a, b, high))
#define INSIDE(a, b, low, high) _mm512_add_ps(_mm512_shuffle_ps(a, b, low), _mm512_shuffle_ps(a, b, high))

/* Fold the sums of keys r, 4 + r, 8 + r, 12 + r into a quarter each: add lanes i and i + 8, then i and i + 4. */
static inline __m512 fold_four(const __m512 *sums) {
    const __m512 low = QUARTERS(sums[0], sums[4], 0x44, 0xee), high = QUARTERS(sums[8], sums[12], 0x44, 0xee);
    return QUARTERS(low, high, 0x88, 0xdd);
}

static inline void hc_dots(int64_t n, const float *q, const float *k, int64_t ld, float *s) {
    __m512 sums[HC_DOTS];
    for (int j = 0; j < HC_DOTS; j++)
        sums[j] = _mm512_setzero_ps();
    for (int64_t i = 0; i < n; i += 16) {
        const __mmask16 there = n - i < 16 ? (__mmask16)((1u << (n - i)) - 1) : (__mmask16)0xffff;
        const __m512 a = _mm512_maskz_loadu_ps(there, q + i);
        for (int j = 0; j < HC_DOTS; j++)
            sums[j] = _mm512_add_ps(sums[j], _mm512_mul_ps(a, _mm512_maskz_loadu_ps(there, k + j * ld + i)));
    }
    const __m512 even = INSIDE(fold_four(sums), fold_four(sums + 1), 0x44, 0xee);
    const __m512 odd = INSIDE(fold_four(sums + 2), fold_four(sums + 3), 0x44, 0xee);
    _mm512_storeu_ps(s, INSIDE(even, odd, 0x88, 0xdd));
}

#include "kernels/layers/attend.h"

void hc_attend_avx512(const hc_attend *some) { hc_attend_body(some); }
