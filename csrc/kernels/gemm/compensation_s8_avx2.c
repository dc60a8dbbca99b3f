/* Sums of the rows of an int8 panel, 8 rows at a time: pairs (at most 256, so vpmaddubsw is exact), then fours. */
#include "kernels/kernel.h"

#include <immintrin.h>

void hc_compensation_s8_avx2(int64_t n_segments, const int32_t *steps, int units, const int8_t *panel, int lanes,
                             int32_t factor, int32_t *sums) {
    const __m256i bytes = _mm256_set1_epi8(1), words = _mm256_set1_epi16(1), times = _mm256_set1_epi32(factor);
    for (int64_t s = 0; s < n_segments; s++, sums += lanes) {
        const int64_t n = (int64_t)steps[s] * units;
        int j = 0;
        for (; j + 8 <= lanes; j += 8) {
            __m256i sum = _mm256_setzero_si256();
            for (int64_t step = 0; step < n; step++) {
                const int8_t *at = panel + (step * lanes + j) * 4;
                const __m256i pairs = _mm256_maddubs_epi16(bytes, _mm256_loadu_si256((const __m256i *)at));
                sum = _mm256_add_epi32(sum, _mm256_madd_epi16(pairs, words));
            }
            _mm256_storeu_si256((__m256i *)(sums + j), _mm256_mullo_epi32(times, sum));
        }
        for (; j < lanes; j++) {
            sums[j] = 0;
            for (int64_t step = 0; step < n; step++)
                for (int i = 0; i < 4; i++)
                    sums[j] += factor * panel[(step * lanes + j) * 4 + i];
        }
        panel += n * lanes * 4;
    }
}
