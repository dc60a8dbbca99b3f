/* One bit an item: items are compared with 0, and what is equal narrowed to bytes, 32 items at a time. */
#include "kernels/kernel.h"

#include <immintrin.h>

#define INLINE static inline __attribute__((always_inline))

INLINE __m256i load(const char *items) { return _mm256_loadu_si256((const __m256i *)(const void *)items); }

/* Bits of 32 items that are 0. */
INLINE uint32_t zeros(const int bytes, const char *items) {
    const __m256i zero = _mm256_setzero_si256();
    if (bytes == 1)
        return (uint32_t)_mm256_movemask_epi8(_mm256_cmpeq_epi8(load(items), zero));
    if (bytes == 2) {
        const __m256i low = _mm256_cmpeq_epi16(load(items), zero), high = _mm256_cmpeq_epi16(load(items + 32), zero);
        return (uint32_t)_mm256_movemask_epi8(_mm256_permute4x64_epi64(_mm256_packs_epi16(low, high), 0xd8));
    }
    uint32_t found = 0;
#pragma GCC unroll 8
    for (int i = 0; i < bytes; i++) {
        const __m256i x = load(items + 32 * i);
        found |= bytes == 4 ? (uint32_t)_mm256_movemask_ps(_mm256_castsi256_ps(_mm256_cmpeq_epi32(x, zero))) << 8 * i
                            : (uint32_t)_mm256_movemask_pd(_mm256_castsi256_pd(_mm256_cmpeq_epi64(x, zero))) << 4 * i;
    }
    return found;
}

INLINE void mark(const int bytes, int64_t words, const char *items, uint64_t *bits) {
    for (int64_t word = 0; word < words; word++, items += 64 * bytes)
        bits[word] = ~(zeros(bytes, items) | (uint64_t)zeros(bytes, items + 32 * bytes) << 32);
}

void hc_bitmap_mark_avx2(int bytes, int64_t words, const void *items, uint64_t *bits) {
    if (bytes == 8)
        mark(8, words, items, bits);
    else if (bytes == 4)
        mark(4, words, items, bits);
    else if (bytes == 2)
        mark(2, words, items, bits);
    else
        mark(1, words, items, bits);
}
