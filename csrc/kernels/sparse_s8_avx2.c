/* The int8 product of what 2:4 keeps, by vpmaddwd: b is widened to int16 as it is loaded, 4 columns of 4 kept values a
 * register, and vpshufb picks the 4 values of a row that stand under them among 8. So a column has two 32-bit lanes,
 * added at the end. 5 rows by 8 columns. */
#include "kernels/kernel.h"

#include <immintrin.h>

hc_sparse_s8_fn hc_sparse_s8_avx2;

enum { MR = 5, NR = 8, KR = 8 };

/* gcc 12 moves all the products of a step before the sums, runs out of registers and spills the accumulators. */
static inline __m256i dot(__m256i sum, __m256i a, __m256i places, __m256i b) {
    __m256i products;
    __asm__("vpshufb %3, %2, %1\n\tvpmaddwd %4, %1, %1\n\tvpaddd %1, %0, %0"
            : "+x"(sum), "=&x"(products)
            : "x"(a), "x"(places), "x"(b));
    return sum;
}

void hc_sparse_s8_avx2(int64_t n_steps, const void *a, const int8_t *b, const int32_t *init, int32_t *c) {
    const int16_t *words = a;
    const __m256i minus_one = _mm256_set1_epi8(-1);
    __m256i sum[MR][2];
#pragma GCC unroll 8
    for (int i = 0; i < MR; i++)
        sum[i][0] = sum[i][1] = _mm256_setzero_si256();
    for (; n_steps > 0; n_steps--, words += MR * KR, b += NR * KR) {
        const __m256i low = _mm256_cvtepi8_epi16(_mm_loadu_si128((const __m128i *)b));
        const __m256i high = _mm256_cvtepi8_epi16(_mm_loadu_si128((const __m128i *)(b + 16)));
        /* Places of 16-bit values -> those of their two bytes; the halves in the order of low and high. */
        const __m256i places = _mm256_permute4x64_epi64(_mm256_loadu_si256((const __m256i *)(b + 32)), 0xd8);
        const __m256i first = _mm256_add_epi8(places, places), second = _mm256_sub_epi8(first, minus_one);
        const __m256i low_places = _mm256_unpacklo_epi8(first, second);
        const __m256i high_places = _mm256_unpackhi_epi8(first, second);
#pragma GCC unroll 8
        for (int i = 0; i < MR; i++) {
            const __m256i x = _mm256_broadcastsi128_si256(_mm_loadu_si128((const __m128i *)(words + i * KR)));
            sum[i][0] = dot(sum[i][0], x, low_places, low);
            sum[i][1] = dot(sum[i][1], x, high_places, high);
        }
    }
    const __m256i start = _mm256_loadu_si256((const __m256i *)init);
#pragma GCC unroll 8
    for (int i = 0; i < MR; i++) {
        const __m256i dots = _mm256_permute4x64_epi64(_mm256_hadd_epi32(sum[i][0], sum[i][1]), 0xd8);
        _mm256_storeu_si256((__m256i *)(c + i * NR), _mm256_add_epi32(start, dots));
    }
}
