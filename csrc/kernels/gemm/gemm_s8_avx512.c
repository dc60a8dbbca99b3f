/* The int8 matmul without VNNI: b is widened to int16 as it is loaded, 8 columns of 4 values per register; vpmaddwd
 * adds pairs exactly. So a column has two 32-bit lanes, which are added at the end. 12 rows by 16 columns. */
#include "kernels/dots/avx512.h"
#include "kernels/kernel.h"

#include <immintrin.h>

enum { MR = 12, NR = 16, KR = 4 };

void hc_gemm_s8_avx512(int64_t n_steps, const void *a, const int8_t *b, const int32_t *init, int32_t *c) {
    const int64_t *quads = a;
    __m512i sum[MR][2];
#pragma GCC unroll 16
    for (int i = 0; i < MR; i++)
        sum[i][0] = sum[i][1] = _mm512_setzero_si512();
    for (; n_steps > 0; n_steps--, quads += MR, b += NR * KR) {
        const __m512i low = _mm512_cvtepi8_epi16(_mm256_loadu_si256((const __m256i *)b));
        const __m512i high = _mm512_cvtepi8_epi16(_mm256_loadu_si256((const __m256i *)(b + 32)));
#pragma GCC unroll 16
        for (int i = 0; i < MR; i++) {
            const __m512i x = _mm512_set1_epi64(quads[i]);
            sum[i][0] = dot(sum[i][0], x, low);
            sum[i][1] = dot(sum[i][1], x, high);
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
