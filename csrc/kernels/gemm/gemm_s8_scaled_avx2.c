/* The int8 matmul with float32 group scales: the sums of a segment as in gemm_s8_avx2.c, then one fma on the 6 x 8
 * float32 sums, which stay in memory (L1). */
#include "kernels/dots/avx2.h"
#include "kernels/kernel.h"

#include <immintrin.h>

enum { MR = 6, NR = 8, KR = 4 };

/* The products of the first step of a segment, which start its sums. */
static inline __m256i product(__m256i a, __m256i b) {
    __m256i products;
    __asm__("vpmaddwd %2, %1, %0" : "=x"(products) : "x"(a), "x"(b));
    return products;
}

/* Converts columns to the order 0 1 4 5 2 3 6 7, which vphaddd produces, and back. */
static inline __m256 turn(__m256 columns) {
    return _mm256_castpd_ps(_mm256_permute4x64_pd(_mm256_castps_pd(columns), 0xd8));
}

void hc_gemm_s8_scaled_avx2(int64_t n_segments, const int32_t *steps, const void *a, const int8_t *b,
                            const int32_t *init, const float *scale_a, const float *scale_b, float *c,
                            bool accumulate) {
    (void)init;
    const long long *quads = a;
    for (int i = 0; i < MR; i++)
        _mm256_storeu_ps(c + i * NR, accumulate ? turn(_mm256_loadu_ps(c + i * NR)) : _mm256_setzero_ps());
    for (int64_t s = 0; s < n_segments; s++, scale_a += MR, scale_b += NR) {
        __m256i sum[MR][2], low, high;
        const int first = steps[s] > 0; /* 1 if there is a first step, whose products start the sums */
#pragma GCC unroll 8
        for (int i = 0; i < MR && !first; i++)
            sum[i][0] = sum[i][1] = _mm256_setzero_si256();
        if (first) {
            low = _mm256_cvtepi8_epi16(_mm_loadu_si128((const __m128i *)b));
            high = _mm256_cvtepi8_epi16(_mm_loadu_si128((const __m128i *)(b + 16)));
#pragma GCC unroll 8
            for (int i = 0; i < MR; i++) {
                const __m256i x = _mm256_set1_epi64x(quads[i]);
                sum[i][0] = product(x, low);
                sum[i][1] = product(x, high);
            }
            quads += MR;
            b += NR * KR;
        }
        for (int32_t step = steps[s] - first; step > 0; step--, quads += MR, b += NR * KR) {
            low = _mm256_cvtepi8_epi16(_mm_loadu_si128((const __m128i *)b));
            high = _mm256_cvtepi8_epi16(_mm_loadu_si128((const __m128i *)(b + 16)));
#pragma GCC unroll 8
            for (int i = 0; i < MR; i++) {
                const __m256i x = _mm256_set1_epi64x(quads[i]);
                sum[i][0] = dot(sum[i][0], x, low);
                sum[i][1] = dot(sum[i][1], x, high);
            }
        }
        const __m256 scales = turn(_mm256_loadu_ps(scale_b));
#pragma GCC unroll 8
        for (int i = 0; i < MR; i++) {
            const __m256 dots = _mm256_cvtepi32_ps(_mm256_hadd_epi32(sum[i][0], sum[i][1]));
            const __m256 scale = _mm256_mul_ps(_mm256_broadcast_ss(scale_a + i), scales);
            _mm256_storeu_ps(c + i * NR, _mm256_fmadd_ps(scale, dots, _mm256_loadu_ps(c + i * NR)));
        }
    }
    for (int i = 0; i < MR; i++)
        _mm256_storeu_ps(c + i * NR, turn(_mm256_loadu_ps(c + i * NR)));
}
