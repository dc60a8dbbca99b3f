/* Kept items back in their places, eight at a time: pdep puts the numbers of the kept ones where their bits are set, and
 * these pick items, -1 a zero; bytes it puts there themselves. Eight are read whatever is placed of them, so the last ones go one by one,
 * and so do those of words that keep few. */
#include "kernels/kernel.h"

#include <immintrin.h>
#include <string.h>

#define INLINE static inline __attribute__((always_inline))

INLINE void place_eight(const int bytes, unsigned marks, const char *kept, char *items) {
    const uint64_t marked = _pdep_u64(marks, 0x0101010101010101u) * 0xff;
    if (bytes == 1) {
        uint64_t eight;
        memcpy(&eight, kept, sizeof eight);
        eight = _pdep_u64(eight, marked);
        memcpy(items, &eight, sizeof eight);
        return;
    }
    const __m128i which = _mm_cvtsi64_si128((long long)(_pdep_u64(0x0706050403020100u, marked) | ~marked));
    if (bytes == 2) {
        const __m128i eight = _mm_loadu_si128((const __m128i *)(const void *)kept);
        const __m128i twice = _mm_unpacklo_epi8(which, which);
        const __m128i each = _mm_or_si128(_mm_add_epi8(twice, twice), _mm_set1_epi16(0x0100));
        _mm_storeu_si128((__m128i *)(void *)items, _mm_shuffle_epi8(eight, each));
    } else {
        const __m256i eight = _mm256_loadu_si256((const __m256i *)(const void *)kept);
        const __m256i each = _mm256_cvtepi8_epi32(which);
        const __m256i placed = _mm256_permutevar8x32_epi32(eight, each);
        _mm256_storeu_si256((__m256i *)(void *)items, _mm256_andnot_si256(_mm256_srai_epi32(each, 31), placed));
    }
}

/* Eight items of 8 bytes: pairs of 4, four items at a time. */
INLINE void place_long(unsigned marks, const char *kept, char *items) {
    const unsigned pairs = (unsigned)_pdep_u32(marks, 0x5555) * 3;
    place_eight(4, pairs & 255, kept, items);
    place_eight(4, pairs >> 8, kept + _mm_popcnt_u32(marks & 15) * 8, items + 32);
}

INLINE void place(const int bytes, int64_t words, const uint64_t *bits, const char *kept, char *items) {
    int64_t left = 0;
    for (int64_t word = 0; word < words; word++)
        left += (int64_t)_mm_popcnt_u64(bits[word]);
    for (int64_t word = 0; word < words; word++, items += 64 * bytes) {
        const int count = (int)_mm_popcnt_u64(bits[word]);
        left -= count;
        if (count < bytes || left < 8) { /* where it is faster, Zen 4, 2026-11 */
            memset(items, 0, (size_t)(64 * bytes));
            for (uint64_t one = bits[word]; one; one &= one - 1, kept += bytes)
                memcpy(items + __builtin_ctzll(one) * bytes, kept, (size_t)bytes);
            continue;
        }
#pragma GCC unroll 8
        for (int i = 0; i < 8; i++) {
            const unsigned marks = bits[word] >> 8 * i & 255;
            if (bytes == 8)
                place_long(marks, kept, items + 64 * i);
            else
                place_eight(bytes, marks, kept, items + 8 * bytes * i);
            kept += _mm_popcnt_u32(marks) * bytes;
        }
    }
}

void hc_bitmap_expand_avx2(int bytes, int64_t words, const uint64_t *bits, const void *kept, void *items) {
    if (bytes == 8)
        place(8, words, bits, kept, items);
    else if (bytes == 4)
        place(4, words, bits, kept, items);
    else if (bytes == 2)
        place(2, words, bits, kept, items);
    else
        place(1, words, bits, kept, items);
}
