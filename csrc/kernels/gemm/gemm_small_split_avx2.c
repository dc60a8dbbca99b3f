/* Small weights with integer group scales: one vpmulld a segment into the 6 x 8 sums, which stay in memory (L1). */
#include "kernels/gemm/gemm_small_avx2.h"

void hc_gemm_small_split_avx2(int64_t n_segments, const int32_t *steps, const void *a, const int8_t *b,
                              const int32_t *init, const float *scale_b, int32_t *c) {
    const int32_t *quads = a;
    for (int i = 0; i < MR * NR; i += 8)
        _mm256_storeu_si256((__m256i *)(c + i), _mm256_setzero_si256());
    for (int64_t s = 0; s < n_segments; s++, init += NR, scale_b += NR) {
        __m256i sum[MR];
        segment(steps[s], &quads, &b, init, sum);
        const __m256i scales = _mm256_cvtps_epi32(_mm256_loadu_ps(scale_b));
#pragma GCC unroll 8
        for (int i = 0; i < MR; i++) {
            __m256i *to = (__m256i *)(c + i * NR);
            _mm256_storeu_si256(to, _mm256_add_epi32(_mm256_loadu_si256(to), _mm256_mullo_epi32(sum[i], scales)));
        }
    }
}
