/* peak_read, 256 bytes a turn: kernels/peak/peak.h. */
#include "kernels/peak/peak.h"

#include <immintrin.h>

static inline __m512i line(const char *from, int64_t ahead) {
    if (ahead)
        _mm_prefetch(from + ahead, _MM_HINT_T0);
    return _mm512_load_si512(from);
}

static inline uint64_t sum_lines(const char *from, int64_t size, int64_t ahead) {
    __m512i sum_u64x8[4] = {{0}};
    int64_t at = 0;
    for (; at + 256 <= size; at += 256) {
#pragma GCC unroll 4
        for (int i = 0; i < 4; i++)
            sum_u64x8[i] = _mm512_add_epi64(sum_u64x8[i], line(from + at + 64 * i, ahead));
    }
    for (; at < size; at += 64)
        sum_u64x8[0] = _mm512_add_epi64(sum_u64x8[0], line(from + at, ahead));
    const __m512i low = _mm512_add_epi64(sum_u64x8[0], sum_u64x8[1]),
                  high = _mm512_add_epi64(sum_u64x8[2], sum_u64x8[3]);
    return (uint64_t)_mm512_reduce_add_epi64(_mm512_add_epi64(low, high));
}

uint64_t hc_peak_read_avx512(const void *bytes, int64_t size, int64_t ahead) {
    return ahead ? sum_lines(bytes, size, ahead) : sum_lines(bytes, size, 0);
}
