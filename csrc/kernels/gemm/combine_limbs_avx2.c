/* Joins the sums of pairs of 8-bit limbs, 4 at a time. */
#include "kernels/kernel.h"

#include <immintrin.h>

void hc_combine_limbs_avx2(int n, int64_t count, const int32_t *tiles, const int *shifts, int64_t *dots) {
    for (int64_t t = 0; t < count; t += 4) {
        __m256i dot = _mm256_loadu_si256((const __m256i *)(dots + t));
        for (int p = 0; p < n; p++) {
            const __m256i sum = _mm256_cvtepi32_epi64(_mm_loadu_si128((const __m128i *)(tiles + p * count + t)));
            dot = _mm256_add_epi64(dot, _mm256_sll_epi64(sum, _mm_cvtsi32_si128(shifts[p])));
        }
        _mm256_storeu_si256((__m256i *)(dots + t), dot);
    }
}
