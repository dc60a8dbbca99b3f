/* Kept codes times few vectors: a mask spreads the codes over 16 columns, and lets nothing else into the sums. */
#include "kernels/kernel.h"

#include <immintrin.h>

hc_few_kept_fn hc_few_kept_avx512;

static inline __attribute__((always_inline)) void walk(const int n_vectors, int64_t words, const uint64_t *masks,
                                                       const float *codes, const float *x, int64_t ldx, float *sums) {
    __m512 sum[4][4];
#pragma GCC unroll 4
    for (int v = 0; v < n_vectors; v++)
#pragma GCC unroll 4
        for (int i = 0; i < 4; i++)
            sum[v][i] = _mm512_loadu_ps(sums + v * 64 + i * 16);
    for (int64_t word = 0; word < words; word++, x += 64) {
        const uint64_t mask = masks[word];
        _mm_prefetch((const char *)codes + 4096, _MM_HINT_T0);
        _mm_prefetch((const char *)codes + 4096 + 64, _MM_HINT_T0);
#pragma GCC unroll 4
        for (int i = 0; i < 4; i++) {
            const __mmask16 kept = (__mmask16)(mask >> 16 * i);
            const __m512 c = _mm512_maskz_expandloadu_ps(kept, codes);
#pragma GCC unroll 4
            for (int v = 0; v < n_vectors; v++)
                sum[v][i] =
                    _mm512_mask3_fmadd_ps(_mm512_maskz_loadu_ps(kept, x + v * ldx + i * 16), c, sum[v][i], kept);
            codes += _mm_popcnt_u32(kept);
        }
    }
#pragma GCC unroll 4
    for (int v = 0; v < n_vectors; v++)
#pragma GCC unroll 4
        for (int i = 0; i < 4; i++)
            _mm512_storeu_ps(sums + v * 64 + i * 16, sum[v][i]);
}

void hc_few_kept_avx512(int64_t words, const uint64_t *masks, const float *codes, const float *x, int64_t ldx,
                        int n_vectors, float *sums) {
    if (n_vectors == 1)
        walk(1, words, masks, codes, x, ldx, sums);
    else if (n_vectors == 2)
        walk(2, words, masks, codes, x, ldx, sums);
    else
        walk(4, words, masks, codes, x, ldx, sums);
}
