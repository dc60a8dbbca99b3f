/* hc_bitmap_mark_avx2, hc_bitmap_compress_avx2 and hc_bitmap_expand_avx2: kernels/compressed/compressed.h. */
#include "kernels/compressed/bitmap.h"

#include <immintrin.h>
#include <string.h>

#define INLINE static inline __attribute__((always_inline))

/* One bit per item: 32 items at a time are compared with 0, and the results are narrowed to bytes. */
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

HC_BITMAP_MARK(avx2)

/* bitmap_compress, eight items at a time: pext moves the indices of the kept items to the front, and a permutation
 * selects the items by these indices. Items of one byte are moved by pext itself. Every step writes eight items, even
 * if it keeps fewer. So the last items of the output are copied one by one, and so are the items of words with few set
 * bits. */

/* Indices of the two bytes of each item, from the indices of items. */
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

/* Eight items of 8 bytes: pairs of 4 bytes, four items at a time. */
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

HC_BITMAP_COMPRESS(avx2)

/* bitmap_expand, eight items at a time: pdep moves the numbers of the kept items to the positions of the set bits, and
 * a permutation selects the items by these numbers; -1 selects a zero. Items of one byte are moved by pdep itself.
 * Every step reads eight kept items, even if it places fewer. So the last kept items are copied one by one, and so are
 * the items of words with few set bits. */
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

/* Eight items of 8 bytes: pairs of 4 bytes, four items at a time. */
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

HC_BITMAP_EXPAND(avx2)
