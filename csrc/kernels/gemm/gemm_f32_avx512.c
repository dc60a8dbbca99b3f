/* The tiled float32 matmul: 14 rows by 2 registers of columns are 28 accumulators, each a broadcast used twice. */
#include "kernels/kernel.h"

#include <immintrin.h>

enum { MR = 14, NR = 32 };

void hc_gemm_f32_avx512(int64_t k, const float *a, const float *b, float *c, int64_t ldc, bool accumulate) {
    __m512 sum[MR][2];
#pragma GCC unroll 16
    for (int i = 0; i < MR; i++) {
        sum[i][0] = accumulate ? _mm512_loadu_ps(c + i * ldc) : _mm512_setzero_ps();
        sum[i][1] = accumulate ? _mm512_loadu_ps(c + i * ldc + 16) : _mm512_setzero_ps();
    }
    for (; k > 0; k--, a += MR, b += NR) {
        const __m512 low = _mm512_loadu_ps(b), high = _mm512_loadu_ps(b + 16);
#pragma GCC unroll 16
        for (int i = 0; i < MR; i++) {
            const __m512 x = _mm512_set1_ps(a[i]);
            sum[i][0] = _mm512_fmadd_ps(x, low, sum[i][0]);
            sum[i][1] = _mm512_fmadd_ps(x, high, sum[i][1]);
        }
    }
#pragma GCC unroll 16
    for (int i = 0; i < MR; i++) {
        _mm512_storeu_ps(c + i * ldc, sum[i][0]);
        _mm512_storeu_ps(c + i * ldc + 16, sum[i][1]);
    }
}
