/* The int8 matmul with float32 group scales: with 6 rows by 2 registers there are registers for the integer sums of a
 * segment and for the float32 sums of all segments. */
#include "kernels/dots/avx512vnni.h"
#include "kernels/kernel.h"

#include <immintrin.h>

enum { MR = 6, NR = 32, KR = 4 };

void hc_gemm_s8_scaled_avx512vnni(int64_t n_segments, const int32_t *steps, const void *a, const int8_t *b,
                                  const int32_t *init, const float *scale_a, const float *scale_b, float *c,
                                  bool accumulate) {
    const int32_t *quads = a;
    __m512 total[MR][2];
#pragma GCC unroll 8
    for (int i = 0; i < MR; i++) {
        total[i][0] = accumulate ? _mm512_loadu_ps(c + i * NR) : _mm512_setzero_ps();
        total[i][1] = accumulate ? _mm512_loadu_ps(c + i * NR + 16) : _mm512_setzero_ps();
    }
    for (int64_t s = 0; s < n_segments; s++, init += NR, scale_a += MR, scale_b += NR) {
        __m512i sum[MR][2];
#pragma GCC unroll 8
        for (int i = 0; i < MR; i++) {
            sum[i][0] = _mm512_loadu_si512(init);
            sum[i][1] = _mm512_loadu_si512(init + 16);
        }
        for (int32_t step = steps[s]; step > 0; step--, quads += MR, b += NR * KR) {
            const __m512i low = _mm512_loadu_si512(b), high = _mm512_loadu_si512(b + 64);
#pragma GCC unroll 8
            for (int i = 0; i < MR; i++) {
                const __m512i x = _mm512_set1_epi32(quads[i]);
                sum[i][0] = dot(sum[i][0], x, low);
                sum[i][1] = dot(sum[i][1], x, high);
            }
        }
        const __m512 low = _mm512_loadu_ps(scale_b), high = _mm512_loadu_ps(scale_b + 16);
#pragma GCC unroll 8
        for (int i = 0; i < MR; i++) {
            const __m512 x = _mm512_set1_ps(scale_a[i]);
            total[i][0] = _mm512_fmadd_ps(_mm512_mul_ps(x, low), _mm512_cvtepi32_ps(sum[i][0]), total[i][0]);
            total[i][1] = _mm512_fmadd_ps(_mm512_mul_ps(x, high), _mm512_cvtepi32_ps(sum[i][1]), total[i][1]);
        }
    }
#pragma GCC unroll 8
    for (int i = 0; i < MR; i++) {
        _mm512_storeu_ps(c + i * NR, total[i][0]);
        _mm512_storeu_ps(c + i * NR + 16, total[i][1]);
    }
}
