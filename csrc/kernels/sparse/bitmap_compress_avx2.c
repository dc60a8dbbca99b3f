/* The items whose bit is set, one after the other, eight at a time: pext brings their places to the front, which then
 * pick items; bytes it brings there themselves. Eight are written whatever is kept of them, so the last ones go one by
 * one, and so do those of words that keep few. */
#include "kernels/kernel.h"

#include <immintrin.h>
#include <string.h>

#define INLINE static inline __attribute__((always_inline))

/* Places of bytes from places of two. */
INLINE __m128i doubled(__m128i places) {
    const __m128i twice = _mm_unpacklo_epi8(places, places);
    return _mm_or_si128(_mm_add_epi8(twice, twice), _mm_set1_epi16(0x0100));
}

INLINE void keep_eight(const int bytes, unsigned marks, const char *items, char *kept) {
    const uint64_t marked = _pdep_u64(marks, 0x0101010101010101u) * 0xff;
    const __m128i places = _mm_cvtsi64_si128((long long)_pext_u64(0x0706050403020100u, marked));
    if (bytes == 1) {
        uint64_t eight;
        memcpy(&eight, items, sizeof eight);
        eight = _pext_u64(eight, marked);
        memcpy(kept, &eight, sizeof eight);
    } else if (bytes == 2) {
        const __m128i eight = _mm_loadu_si128((const __m128i *)(const void *)items);
        _mm_storeu_si128((__m128i *)(void *)kept, _mm_shuffle_epi8(eight, doubled(places)));
    } else {
        const __m256i eight = _mm256_loadu_si256((const __m256i *)(const void *)items);
        _mm256_storeu_si256((__m256i *)(void *)kept, _mm256_permutevar8x32_epi32(eight, _mm256_cvtepu8_epi32(places)));
    }
}

/* Eight items of 8 bytes: pairs of 4, four items at a time. */
INLINE void keep_long(unsigned marks, const char *items, char *kept) {
    const unsigned pairs = (unsigned)_pdep_u32(marks, 0x5555) * 3;
    keep_eight(4, pairs & 255, items, kept);
    keep_eight(4, pairs >> 8, items + 32, kept + _mm_popcnt_u32(marks & 15) * 8);
}

INLINE void keep(const int bytes, int64_t words, const uint64_t *bits, const char *items, char *kept) {
    int64_t left = 0;
    for (int64_t word = 0; word < words; word++)
        left += (int64_t)_mm_popcnt_u64(bits[word]);
    for (int64_t word = 0; word < words; word++, items += 64 * bytes) {
        const int count = (int)_mm_popcnt_u64(bits[word]);
        left -= count;
        if (count < 2 * bytes + 2 || left < 8) { /* where it is faster, Zen 4, 2026-11 */
            for (uint64_t one = bits[word]; one; one &= one - 1, kept += bytes)
                memcpy(kept, items + __builtin_ctzll(one) * bytes, (size_t)bytes);
            continue;
        }
#pragma GCC unroll 8
        for (int i = 0; i < 8; i++) {
            const unsigned marks = bits[word] >> 8 * i & 255;
            if (bytes == 8)
                keep_long(marks, items + 64 * i, kept);
            else
                keep_eight(bytes, marks, items + 8 * bytes * i, kept);
            kept += _mm_popcnt_u32(marks) * bytes;
        }
    }
}

void hc_bitmap_compress_avx2(int bytes, int64_t words, const uint64_t *bits, const void *items, void *kept) {
    if (bytes == 8)
        keep(8, words, bits, items, kept);
    else if (bytes == 4)
        keep(4, words, bits, items, kept);
    else if (bytes == 2)
        keep(2, words, bits, items, kept);
    else
        keep(1, words, bits, items, kept);
}
