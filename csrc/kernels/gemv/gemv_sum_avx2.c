/* gemv_sum: products of 32-bit lanes in 64 bits, even and odd lanes separately. */
#include "kernels/kernel.h"

#include <immintrin.h>

int64_t hc_gemv_sum_avx2(int64_t n, const float *integers, const int32_t *dots, const int32_t *corrections) {
    __m256i even = _mm256_setzero_si256(), odd = even;
    int64_t i = 0, rest = 0;
    for (; i + 8 <= n; i += 8) {
        const __m256i dot = _mm256_sub_epi32(_mm256_loadu_si256((const __m256i *)(dots + i)),
                                             _mm256_loadu_si256((const __m256i *)(corrections + i)));
        const __m256i factor = _mm256_cvtps_epi32(_mm256_loadu_ps(integers + i));
        even = _mm256_add_epi64(even, _mm256_mul_epi32(dot, factor));
        odd = _mm256_add_epi64(odd, _mm256_mul_epi32(_mm256_srli_epi64(dot, 32), _mm256_srli_epi64(factor, 32)));
    }
    for (; i < n; i++)
        rest += (int64_t)(int32_t)integers[i] * (int32_t)((uint32_t)dots[i] - (uint32_t)corrections[i]);
    const __m256i all = _mm256_add_epi64(even, odd);
    const __m128i two = _mm_add_epi64(_mm256_castsi256_si128(all), _mm256_extracti128_si256(all, 1));
    return rest + _mm_cvtsi128_si64(two) + _mm_extract_epi64(two, 1);
}
