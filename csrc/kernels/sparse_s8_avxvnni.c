/* The int8 product of what 2:4 keeps, as sparse_s8_avx512vnni.c on 256-bit registers: 5 rows by 2 registers of columns. */
#include "kernels/kernel.h"

#include <immintrin.h>

hc_sparse_s8_fn hc_sparse_s8_avxvnni;

enum { MR = 5, NR = 16, KR = 8 };

/* As in gemm_s8_avx512vnni.c: the intrinsic makes gcc 12 copy accumulators. */
static inline __m256i dot(__m256i sum, __m256i a_u8, __m256i b_s8) {
    __asm__("%{vex%} vpdpbusd %2, %1, %0" : "+x"(sum) : "x"(a_u8), "x"(b_s8));
    return sum;
}

void hc_sparse_s8_avxvnni(int64_t n_steps, const void *a, const int8_t *b, const int32_t *init, int32_t *c) {
    const long long *eights = a;
    __m256i sum[MR][2];
#pragma GCC unroll 8
    for (int i = 0; i < MR; i++) {
        sum[i][0] = _mm256_loadu_si256((const __m256i *)init);
        sum[i][1] = _mm256_loadu_si256((const __m256i *)(init + 8));
    }
    for (; n_steps > 0; n_steps--, eights += MR, b += NR * KR) {
        const __m256i low = _mm256_loadu_si256((const __m256i *)b);
        const __m256i high = _mm256_loadu_si256((const __m256i *)(b + 32));
        const __m256i low_places = _mm256_loadu_si256((const __m256i *)(b + 64));
        const __m256i high_places = _mm256_loadu_si256((const __m256i *)(b + 96));
#pragma GCC unroll 8
        for (int i = 0; i < MR; i++) {
            const __m256i x = _mm256_set1_epi64x(eights[i]);
            sum[i][0] = dot(sum[i][0], _mm256_shuffle_epi8(x, low_places), low);
            sum[i][1] = dot(sum[i][1], _mm256_shuffle_epi8(x, high_places), high);
        }
    }
#pragma GCC unroll 8
    for (int i = 0; i < MR; i++) {
        _mm256_storeu_si256((__m256i *)(c + i * NR), sum[i][0]);
        _mm256_storeu_si256((__m256i *)(c + i * NR + 8), sum[i][1]);
    }
}
