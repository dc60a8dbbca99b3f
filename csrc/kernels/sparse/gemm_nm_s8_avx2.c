/* The int8 matmul of patterns by vpmaddwd. b is widened to int16 when it is loaded, 4 nonzeros of 4 columns per
 * register. vpshufb selects the 4 bytes of a row of a that belong to them among kr, each followed by a zero byte. So a
 * column has two 32-bit lanes, which are added at the end. 5 rows by 8 columns. */
#include "kernels/kernel.h"

#include <immintrin.h>

#define INLINE static inline __attribute__((always_inline))
enum { MR = 5, NR = 8 };

/* gcc 12 moves all the products of a step before the sums, runs out of registers and spills the accumulators. */
INLINE __m256i dot(__m256i sum, __m256i a, __m256i places, __m256i b) {
    __m256i products;
    __asm__("vpshufb %3, %2, %1\n\tvpmaddwd %4, %1, %1\n\tvpaddd %1, %0, %0"
            : "+x"(sum), "=&x"(products)
            : "x"(a), "x"(places), "x"(b));
    return sum;
}

INLINE __m256i load_row(const uint8_t *a, int kr) {
    return kr == 8 ? _mm256_broadcastq_epi64(_mm_loadl_epi64((const __m128i *)a))
                   : _mm256_broadcastsi128_si256(_mm_loadu_si128((const __m128i *)a));
}

/* The lower byte of a word is selected by its index, the upper byte is 0. */
INLINE __m256i word_places(const int8_t *places) {
    const __m256i wide = _mm256_cvtepu8_epi16(_mm_loadu_si128((const __m128i *)places));
    return _mm256_or_si256(wide, _mm256_set1_epi16(-0x8000));
}

INLINE void sparse_s8(int kr, int64_t n_steps, const uint8_t *a, const int8_t *b, const int32_t *init, int32_t *c) {
    __m256i sum[MR][2];
#pragma GCC unroll 8
    for (int i = 0; i < MR; i++)
        sum[i][0] = sum[i][1] = _mm256_setzero_si256();
    for (; n_steps > 0; n_steps--, a += MR * kr, b += NR * 8) {
        const __m256i low = _mm256_cvtepi8_epi16(_mm_loadu_si128((const __m128i *)b));
        const __m256i high = _mm256_cvtepi8_epi16(_mm_loadu_si128((const __m128i *)(b + 16)));
        const __m256i low_places = word_places(b + 32), high_places = word_places(b + 48);
#pragma GCC unroll 8
        for (int i = 0; i < MR; i++) {
            const __m256i row = load_row(a + i * kr, kr);
            sum[i][0] = dot(sum[i][0], row, low_places, low);
            sum[i][1] = dot(sum[i][1], row, high_places, high);
        }
    }
    const __m256i start = _mm256_loadu_si256((const __m256i *)init);
#pragma GCC unroll 8
    for (int i = 0; i < MR; i++) {
        const __m256i dots = _mm256_permute4x64_epi64(_mm256_hadd_epi32(sum[i][0], sum[i][1]), 0xd8);
        _mm256_storeu_si256((__m256i *)(c + i * NR), _mm256_add_epi32(start, dots));
    }
}

void hc_gemm_nm_s8_of8_avx2(int64_t n_steps, const void *a, const int8_t *b, const int32_t *init, int32_t *c) {
    sparse_s8(8, n_steps, a, b, init, c);
}

void hc_gemm_nm_s8_of16_avx2(int64_t n_steps, const void *a, const int8_t *b, const int32_t *init, int32_t *c) {
    sparse_s8(16, n_steps, a, b, init, c);
}
