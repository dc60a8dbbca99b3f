/* The tiled float32 matmul: 6 rows by 2 registers of columns are 12 accumulators, each a broadcast used twice. */
#include "kernels/kernel.h"

#include <immintrin.h>

enum { MR = 6, NR = 16 };

void hc_gemm_f32_avx2(int64_t k, const float *a, const float *b, float *c, int64_t ldc, bool accumulate) {
    __m256 sum[MR][2];
#pragma GCC unroll 8
    for (int i = 0; i < MR; i++) {
        sum[i][0] = accumulate ? _mm256_loadu_ps(c + i * ldc) : _mm256_setzero_ps();
        sum[i][1] = accumulate ? _mm256_loadu_ps(c + i * ldc + 8) : _mm256_setzero_ps();
    }
    for (; k > 0; k--, a += MR, b += NR) {
        const __m256 low = _mm256_loadu_ps(b), high = _mm256_loadu_ps(b + 8);
#pragma GCC unroll 8
        for (int i = 0; i < MR; i++) {
            const __m256 x = _mm256_broadcast_ss(a + i);
            sum[i][0] = _mm256_fmadd_ps(x, low, sum[i][0]);
            sum[i][1] = _mm256_fmadd_ps(x, high, sum[i][1]);
        }
    }
#pragma GCC unroll 8
    for (int i = 0; i < MR; i++) {
        _mm256_storeu_ps(c + i * ldc, sum[i][0]);
        _mm256_storeu_ps(c + i * ldc + 8, sum[i][1]);
    }
}
