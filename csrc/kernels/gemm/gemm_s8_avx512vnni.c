/* The int8 matmul by vpdpbusd: 12 rows by 2 registers of columns, 4 values of k a step. */
#include "kernels/dots/avx512vnni.h"
#include "kernels/kernel.h"

#include <immintrin.h>

enum { MR = 12, NR = 32, KR = 4 };

void hc_gemm_s8_avx512vnni(int64_t n_steps, const void *a, const int8_t *b, const int32_t *init, int32_t *c) {
    const int32_t *quads = a;
    __m512i sum[MR][2];
#pragma GCC unroll 16
    for (int i = 0; i < MR; i++) {
        sum[i][0] = _mm512_loadu_si512(init);
        sum[i][1] = _mm512_loadu_si512(init + 16);
    }
    for (; n_steps > 0; n_steps--, quads += MR, b += NR * KR) {
        const __m512i low = _mm512_loadu_si512(b), high = _mm512_loadu_si512(b + 64);
#pragma GCC unroll 16
        for (int i = 0; i < MR; i++) {
            const __m512i x = _mm512_set1_epi32(quads[i]);
            sum[i][0] = dot(sum[i][0], x, low);
            sum[i][1] = dot(sum[i][1], x, high);
        }
    }
#pragma GCC unroll 16
    for (int i = 0; i < MR; i++) {
        _mm512_storeu_si512(c + i * NR, sum[i][0]);
        _mm512_storeu_si512(c + i * NR + 16, sum[i][1]);
    }
}
