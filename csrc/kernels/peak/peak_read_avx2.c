/* peak_read, 256 bytes a turn: kernels/peak/peak.h. */
#include "kernels/peak/peak.h"

#include <immintrin.h>

static inline __m256i line(const char *from, int64_t ahead) {
    if (ahead)
        _mm_prefetch(from + ahead, _MM_HINT_T0);
    return _mm256_add_epi64(_mm256_load_si256((const __m256i *)from), _mm256_load_si256((const __m256i *)from + 1));
}

static inline uint64_t sum_lines(const char *from, int64_t size, int64_t ahead) {
    __m256i sum_u64x4[4] = {{0}};
    int64_t at = 0;
    for (; at + 256 <= size; at += 256) {
#pragma GCC unroll 4
        for (int i = 0; i < 4; i++)
            sum_u64x4[i] = _mm256_add_epi64(sum_u64x4[i], line(from + at + 64 * i, ahead));
    }
    for (; at < size; at += 64)
        sum_u64x4[0] = _mm256_add_epi64(sum_u64x4[0], line(from + at, ahead));
    uint64_t word[4];
    const __m256i low = _mm256_add_epi64(sum_u64x4[0], sum_u64x4[1]),
                  high = _mm256_add_epi64(sum_u64x4[2], sum_u64x4[3]);
    _mm256_storeu_si256((__m256i *)word, _mm256_add_epi64(low, high));
    return (word[0] + word[1]) + (word[2] + word[3]);
}

uint64_t hc_peak_read_avx2(const void *bytes, int64_t size, int64_t ahead) {
    return ahead ? sum_lines(bytes, size, ahead) : sum_lines(bytes, size, 0);
}
