/* Joins the sums of pairs of 8-bit limbs, 8 at a time. */
#include "kernels/kernel.h"

#include <immintrin.h>

void hc_combine_limbs_avx512(int n, int64_t count, const int32_t *tiles, const int *shifts, int64_t *dots) {
    for (int64_t t = 0; t < count; t += 8) {
        __m512i dot = _mm512_loadu_si512(dots + t);
        for (int p = 0; p < n; p++) {
            const __m512i sum = _mm512_cvtepi32_epi64(_mm256_loadu_si256((const __m256i *)(tiles + p * count + t)));
            dot = _mm512_add_epi64(dot, _mm512_sll_epi64(sum, _mm_cvtsi32_si128(shifts[p])));
        }
        _mm512_storeu_si512(dots + t, dot);
    }
}
