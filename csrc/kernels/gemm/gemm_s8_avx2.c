/* The int8 matmul by vpmaddwd, which is exact where vpmaddubsw saturates: b is widened to int16 as it is loaded, 4
 * columns of 4 values per register, so a column has two 32-bit lanes, added at the end. 6 rows by 8 columns. */
#include "kernels/dots/avx2.h"
#include "kernels/kernel.h"

#include <immintrin.h>

enum { MR = 6, NR = 8, KR = 4 };

void hc_gemm_s8_avx2(int64_t n_steps, const void *a, const int8_t *b, const int32_t *init, int32_t *c) {
    const long long *quads = a;
    __m256i sum[MR][2];
#pragma GCC unroll 8
    for (int i = 0; i < MR; i++)
        sum[i][0] = sum[i][1] = _mm256_setzero_si256();
    for (; n_steps > 0; n_steps--, quads += MR, b += NR * KR) {
        const __m256i low = _mm256_cvtepi8_epi16(_mm_loadu_si128((const __m128i *)b));
        const __m256i high = _mm256_cvtepi8_epi16(_mm_loadu_si128((const __m128i *)(b + 16)));
#pragma GCC unroll 8
        for (int i = 0; i < MR; i++) {
            const __m256i x = _mm256_set1_epi64x(quads[i]);
            sum[i][0] = dot(sum[i][0], x, low);
            sum[i][1] = dot(sum[i][1], x, high);
        }
    }
    const __m256i start = _mm256_loadu_si256((const __m256i *)init);
#pragma GCC unroll 8
    for (int i = 0; i < MR; i++) {
        const __m256i dots = _mm256_permute4x64_epi64(_mm256_hadd_epi32(sum[i][0], sum[i][1]), 0xd8);
        _mm256_storeu_si256((__m256i *)(c + i * NR), _mm256_add_epi32(start, dots));
    }
}
