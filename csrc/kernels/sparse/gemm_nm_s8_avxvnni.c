/* The int8 matmul of patterns, like gemm_nm_s8_avx512vnni.h with 256-bit registers: 5 rows by 2 registers of
 * columns. */
#include "kernels/dots/avxvnni.h"
#include "kernels/kernel.h"

#include <immintrin.h>

#define INLINE static inline __attribute__((always_inline))
enum { MR = 5, NR = 16 };

INLINE __m256i load_row(const uint8_t *a, int kr) {
    return kr == 8 ? _mm256_broadcastq_epi64(_mm_loadl_epi64((const __m128i *)a))
                   : _mm256_broadcastsi128_si256(_mm_loadu_si128((const __m128i *)a));
}

INLINE void sparse_s8(int kr, int64_t n_steps, const uint8_t *a, const int8_t *b, const int32_t *init, int32_t *c) {
    __m256i sum[MR][2];
#pragma GCC unroll 8
    for (int i = 0; i < MR; i++) {
        sum[i][0] = _mm256_loadu_si256((const __m256i *)init);
        sum[i][1] = _mm256_loadu_si256((const __m256i *)(init + 8));
    }
    for (; n_steps > 0; n_steps--, a += MR * kr, b += NR * 8) {
        const __m256i low = _mm256_loadu_si256((const __m256i *)b);
        const __m256i high = _mm256_loadu_si256((const __m256i *)(b + 32));
        const __m256i low_places = _mm256_loadu_si256((const __m256i *)(b + 64));
        const __m256i high_places = _mm256_loadu_si256((const __m256i *)(b + 96));
#pragma GCC unroll 8
        for (int i = 0; i < MR; i++) {
            const __m256i row = load_row(a + i * kr, kr);
            sum[i][0] = dot(sum[i][0], _mm256_shuffle_epi8(row, low_places), low);
            sum[i][1] = dot(sum[i][1], _mm256_shuffle_epi8(row, high_places), high);
        }
    }
#pragma GCC unroll 8
    for (int i = 0; i < MR; i++) {
        _mm256_storeu_si256((__m256i *)(c + i * NR), sum[i][0]);
        _mm256_storeu_si256((__m256i *)(c + i * NR + 8), sum[i][1]);
    }
}

void hc_gemm_nm_s8_of8_avxvnni(int64_t n_steps, const void *a, const int8_t *b, const int32_t *init, int32_t *c) {
    sparse_s8(8, n_steps, a, b, init, c);
}

void hc_gemm_nm_s8_of16_avxvnni(int64_t n_steps, const void *a, const int8_t *b, const int32_t *init, int32_t *c) {
    sparse_s8(16, n_steps, a, b, init, c);
}
