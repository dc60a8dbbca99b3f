/* The int8 matmul by vpdpbusd on 256-bit registers: 6 rows by 2 registers of columns, 4 values of k a step. */
#include "kernels/dots/avxvnni.h"
#include "kernels/kernel.h"

#include <immintrin.h>

enum { MR = 6, NR = 16, KR = 4 };

void hc_gemm_s8_avxvnni(int64_t n_steps, const void *a, const int8_t *b, const int32_t *init, int32_t *c) {
    const int32_t *quads = a;
    __m256i sum[MR][2];
#pragma GCC unroll 8
    for (int i = 0; i < MR; i++) {
        sum[i][0] = _mm256_loadu_si256((const __m256i *)init);
        sum[i][1] = _mm256_loadu_si256((const __m256i *)(init + 8));
    }
    for (; n_steps > 0; n_steps--, quads += MR, b += NR * KR) {
        const __m256i low = _mm256_loadu_si256((const __m256i *)b);
        const __m256i high = _mm256_loadu_si256((const __m256i *)(b + 32));
#pragma GCC unroll 8
        for (int i = 0; i < MR; i++) {
            const __m256i x = _mm256_set1_epi32(quads[i]);
            sum[i][0] = dot(sum[i][0], x, low);
            sum[i][1] = dot(sum[i][1], x, high);
        }
    }
#pragma GCC unroll 8
    for (int i = 0; i < MR; i++) {
        _mm256_storeu_si256((__m256i *)(c + i * NR), sum[i][0]);
        _mm256_storeu_si256((__m256i *)(c + i * NR + 8), sum[i][1]);
    }
}
