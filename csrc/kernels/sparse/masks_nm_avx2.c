/* masks_nm: positions become bytes with one bit set, and those of a block are joined.
 *
 *   2:4  a nibble is a block: a table gives its 4 bits
 *   1:4  a nibble is two blocks: a table gives their 8 bits
 *   n:8  24 bits are 8 positions, spread to bytes by pdep, n = 1, 2, 4; byte n * i of the joined ones is block i
 *   1:16 a nibble is a block
 */
#include "kernels/kernel.h"

#include <immintrin.h>
#include <string.h>

#define INLINE static inline __attribute__((always_inline))

/* Bits of 16 bytes, looked up by their low and by their high nibbles. */
INLINE __m128i low_by(__m128i table, __m128i bytes) {
    return _mm_shuffle_epi8(table, _mm_and_si128(bytes, _mm_set1_epi8(15)));
}
INLINE __m128i high_by(__m128i table, __m128i bytes) { return low_by(table, _mm_srli_epi16(bytes, 4)); }

INLINE int64_t two_of_four(const uint8_t *metadata, int64_t words, uint64_t *masks) {
    const __m128i quads = _mm_setr_epi8(1, 3, 5, 9, 3, 2, 6, 10, 5, 6, 4, 12, 9, 10, 12, 8);
    int64_t word = 0;
    for (; word + 2 <= words; word += 2) {
        const __m128i bytes = _mm_loadu_si128((const __m128i *)(metadata + word * 8));
        const __m128i both = _mm_or_si128(low_by(quads, bytes), _mm_slli_epi16(high_by(quads, bytes), 4));
        _mm_storeu_si128((__m128i *)(masks + word), both);
    }
    return word;
}

INLINE int64_t one_of_four(const uint8_t *metadata, int64_t words, uint64_t *masks) {
    const __m128i pairs = _mm_setr_epi8(0x11, 0x12, 0x14, 0x18, 0x21, 0x22, 0x24, 0x28, 0x41, 0x42, 0x44, 0x48, -0x7f,
                                        -0x7e, -0x7c, -0x78);
    int64_t word = 0;
    for (; word + 2 <= words; word += 2) {
        const __m128i bytes = _mm_loadl_epi64((const __m128i *)(metadata + word * 4));
        const __m128i both = _mm_unpacklo_epi8(low_by(pairs, bytes), high_by(pairs, bytes));
        _mm_storeu_si128((__m128i *)(masks + word), both);
    }
    return word;
}

/* 8 positions of 3 bits; 8 bytes are read. */
INLINE uint64_t eight_positions(const uint8_t *metadata) {
    uint64_t bits;
    memcpy(&bits, metadata, sizeof bits);
    return _pdep_u64(bits, 0x0707070707070707u);
}

INLINE int64_t some_of_eight(int n, const uint8_t *metadata, int64_t bytes, int64_t words, uint64_t *masks) {
    const __m256i one_hot = _mm256_setr_epi8(1, 2, 4, 8, 16, 32, 64, -128, 0, 0, 0, 0, 0, 0, 0, 0, 1, 2, 4, 8, 16, 32,
                                             64, -128, 0, 0, 0, 0, 0, 0, 0, 0);
    for (int64_t word = 0; word < words; word++) {
        const int64_t place = word * 3 * n;
        uint8_t last[24] = {0};
        const uint8_t *from = metadata + place;
        if (place + 3 * n + 5 > bytes) {
            memcpy(last, from, (size_t)(3 * n));
            from = last;
        }
        const __m128i low =
            _mm_set_epi64x(n > 1 ? (long long)eight_positions(from + 3) : 0, (long long)eight_positions(from));
        if (n == 1) {
            masks[word] = (uint64_t)_mm_cvtsi128_si64(_mm_shuffle_epi8(_mm256_castsi256_si128(one_hot), low));
        } else if (n == 2) {
            const __m128i hot = _mm_shuffle_epi8(_mm256_castsi256_si128(one_hot), low);
            const __m128i joined = _mm_or_si128(hot, _mm_srli_epi16(hot, 8));
            const __m128i even = _mm_setr_epi8(0, 2, 4, 6, 8, 10, 12, 14, -1, -1, -1, -1, -1, -1, -1, -1);
            masks[word] = (uint64_t)_mm_cvtsi128_si64(_mm_shuffle_epi8(joined, even));
        } else {
            const __m128i high =
                _mm_set_epi64x((long long)eight_positions(from + 9), (long long)eight_positions(from + 6));
            const __m256i hot = _mm256_shuffle_epi8(one_hot, _mm256_set_m128i(high, low));
            const __m256i pairs = _mm256_or_si256(hot, _mm256_srli_epi16(hot, 8));
            const __m256i joined = _mm256_or_si256(pairs, _mm256_srli_epi32(pairs, 16));
            const __m128i first = _mm_setr_epi8(0, 4, 8, 12, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1);
            const __m128i blocks = _mm_unpacklo_epi32(_mm_shuffle_epi8(_mm256_castsi256_si128(joined), first),
                                                      _mm_shuffle_epi8(_mm256_extracti128_si256(joined, 1), first));
            masks[word] = (uint64_t)_mm_cvtsi128_si64(blocks);
        }
    }
    return words;
}

INLINE int64_t one_of_sixteen(const uint8_t *metadata, int64_t words, uint64_t *masks) {
    for (int64_t word = 0; word < words; word++) {
        const unsigned low = metadata[word * 2], high = metadata[word * 2 + 1];
        masks[word] =
            1ull << (low & 15) | 1ull << (16 + (low >> 4)) | 1ull << (32 + (high & 15)) | 1ull << (48 + (high >> 4));
    }
    return words;
}

int64_t hc_masks_nm_avx2(int n, int m, const uint8_t *metadata, int64_t bytes, int64_t words, uint64_t *masks) {
    if (m == 4 && n == 2)
        return two_of_four(metadata, words, masks);
    if (m == 4 && n == 1)
        return one_of_four(metadata, words, masks);
    if (m == 8 && n == 1)
        return some_of_eight(1, metadata, bytes, words, masks);
    if (m == 8 && n == 2)
        return some_of_eight(2, metadata, bytes, words, masks);
    if (m == 8 && n == 4)
        return some_of_eight(4, metadata, bytes, words, masks);
    if (m == 16 && n == 1)
        return one_of_sixteen(metadata, words, masks);
    return 0;
}
