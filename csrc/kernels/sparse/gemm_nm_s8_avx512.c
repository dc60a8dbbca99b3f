/* The int8 matmul of patterns without VNNI, like gemm_nm_s8_avx2.c with 512-bit registers: 4 nonzeros of 8 columns per
 * register. 12 rows by 16 columns. */
#include "kernels/kernel.h"

#include <immintrin.h>

#define INLINE static inline __attribute__((always_inline))
enum { MR = 12, NR = 16 };

/* gcc 12 moves all the products of a step before the sums, runs out of registers and spills the accumulators. */
INLINE __m512i dot(__m512i sum, __m512i a, __m512i places, __m512i b) {
    __m512i products;
    __asm__("vpshufb %3, %2, %1\n\tvpmaddwd %4, %1, %1\n\tvpaddd %1, %0, %0"
            : "+v"(sum), "=&v"(products)
            : "v"(a), "v"(places), "v"(b));
    return sum;
}

INLINE __m512i load_row(const uint8_t *a, int kr) {
    return kr == 8 ? _mm512_broadcastq_epi64(_mm_loadl_epi64((const __m128i *)a))
                   : _mm512_broadcast_i32x4(_mm_loadu_si128((const __m128i *)a));
}

/* The lower byte of a word is selected by its index, the upper byte is 0. */
INLINE __m512i word_places(const int8_t *places) {
    const __m512i wide = _mm512_cvtepu8_epi16(_mm256_loadu_si256((const __m256i *)places));
    return _mm512_or_si512(wide, _mm512_set1_epi16(-0x8000));
}

INLINE void sparse_s8(int kr, int64_t n_steps, const uint8_t *a, const int8_t *b, const int32_t *init, int32_t *c) {
    __m512i sum[MR][2];
#pragma GCC unroll 16
    for (int i = 0; i < MR; i++)
        sum[i][0] = sum[i][1] = _mm512_setzero_si512();
    for (; n_steps > 0; n_steps--, a += MR * kr, b += NR * 8) {
        const __m512i low = _mm512_cvtepi8_epi16(_mm256_loadu_si256((const __m256i *)b));
        const __m512i high = _mm512_cvtepi8_epi16(_mm256_loadu_si256((const __m256i *)(b + 32)));
        const __m512i low_places = word_places(b + 64), high_places = word_places(b + 96);
#pragma GCC unroll 16
        for (int i = 0; i < MR; i++) {
            const __m512i row = load_row(a + i * kr, kr);
            sum[i][0] = dot(sum[i][0], row, low_places, low);
            sum[i][1] = dot(sum[i][1], row, high_places, high);
        }
    }
    const __m512i even = _mm512_set_epi32(30, 28, 26, 24, 22, 20, 18, 16, 14, 12, 10, 8, 6, 4, 2, 0);
    const __m512i odd = _mm512_add_epi32(even, _mm512_set1_epi32(1)), start = _mm512_loadu_si512(init);
#pragma GCC unroll 16
    for (int i = 0; i < MR; i++) {
        const __m512i dots = _mm512_add_epi32(_mm512_permutex2var_epi32(sum[i][0], even, sum[i][1]),
                                              _mm512_permutex2var_epi32(sum[i][0], odd, sum[i][1]));
        _mm512_storeu_si512(c + i * NR, _mm512_add_epi32(start, dots));
    }
}

void hc_gemm_nm_s8_of8_avx512(int64_t n_steps, const void *a, const int8_t *b, const int32_t *init, int32_t *c) {
    sparse_s8(8, n_steps, a, b, init, c);
}

void hc_gemm_nm_s8_of16_avx512(int64_t n_steps, const void *a, const int8_t *b, const int32_t *init, int32_t *c) {
    sparse_s8(16, n_steps, a, b, init, c);
}
