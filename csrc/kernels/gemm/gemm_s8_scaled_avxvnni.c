/* The int8 matmul with float32 group scales: the sums of a segment as in gemm_s8_avxvnni.c, then one fma on the 6 x 16
 * float32 sums, which stay in memory (L1). */
#include "kernels/dots/avxvnni.h"
#include "kernels/kernel.h"

#include <immintrin.h>

enum { MR = 6, NR = 16, KR = 4 };

static inline void scale_add(float *c, __m256 scale, __m256i dots) {
    _mm256_storeu_ps(c, _mm256_fmadd_ps(scale, _mm256_cvtepi32_ps(dots), _mm256_loadu_ps(c)));
}

void hc_gemm_s8_scaled_avxvnni(int64_t n_segments, const int32_t *steps, const void *a, const int8_t *b,
                               const int32_t *init, const float *scale_a, const float *scale_b, float *c,
                               bool accumulate) {
    const int32_t *quads = a;
    for (int i = 0; i < MR * NR && !accumulate; i += 8)
        _mm256_storeu_ps(c + i, _mm256_setzero_ps());
    for (int64_t s = 0; s < n_segments; s++, init += NR, scale_a += MR, scale_b += NR) {
        __m256i sum[MR][2];
#pragma GCC unroll 8
        for (int i = 0; i < MR; i++) {
            sum[i][0] = _mm256_loadu_si256((const __m256i *)init);
            sum[i][1] = _mm256_loadu_si256((const __m256i *)(init + 8));
        }
        for (int32_t step = steps[s]; step > 0; step--, quads += MR, b += NR * KR) {
            const __m256i low = _mm256_loadu_si256((const __m256i *)b);
            const __m256i high = _mm256_loadu_si256((const __m256i *)(b + 32));
#pragma GCC unroll 8
            for (int i = 0; i < MR; i++) {
                const __m256i x = _mm256_set1_epi32(quads[i]);
                sum[i][0] = dot(sum[i][0], x, low);
                sum[i][1] = dot(sum[i][1], x, high);
            }
        }
        const __m256 low = _mm256_loadu_ps(scale_b), high = _mm256_loadu_ps(scale_b + 8);
#pragma GCC unroll 8
        for (int i = 0; i < MR; i++) {
            const __m256 x = _mm256_broadcast_ss(scale_a + i);
            scale_add(c + i * NR, _mm256_mul_ps(x, low), sum[i][0]);
            scale_add(c + i * NR + 8, _mm256_mul_ps(x, high), sum[i][1]);
        }
    }
}
