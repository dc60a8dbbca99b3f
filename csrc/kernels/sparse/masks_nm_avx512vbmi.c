/* masks_nm of blocks whose positions have at most 6 bits: 64 blocks at a time, one byte each. The bit field of a block
 * is looked up in a table of 64 bytes; then the m bits of each byte are packed. 4:8 has a byte for each of 64 positions,
 * 1:16 two bytes for each of 32.
 */
#include "kernels/kernel.h"

#include <immintrin.h>

#define INLINE static inline __attribute__((always_inline))

INLINE __m512i count_bytes(void) {
    const __m512i eight = _mm512_set1_epi64(0x0706050403020100);
    return _mm512_add_epi8(eight, _mm512_set_epi64(0x3838383838383838, 0x3030303030303030, 0x2828282828282828,
                                                   0x2020202020202020, 0x1818181818181818, 0x1010101010101010,
                                                   0x0808080808080808, 0));
}

/* Bitmask of n positions with `bits` bits each, indexed by the 6 bits that contain them. */
INLINE __m512i make_table(int n, int bits) {
    const __m512i one_hot = _mm512_broadcast_i32x4(_mm_setr_epi8(1, 2, 4, 8, 16, 32, 64, -128, 0, 0, 0, 0, 0, 0, 0, 0));
    __m512i fields = count_bytes(), table = _mm512_setzero_si512();
    const __m512i below = _mm512_set1_epi8((char)((1 << bits) - 1));
    for (int i = 0; i < n; i++) {
        table = _mm512_or_si512(table, _mm512_shuffle_epi8(one_hot, _mm512_and_si512(fields, below)));
        /* the lookup below uses 6 of 8 bits, which excludes the neighbour's bits */
        fields = _mm512_srl_epi16(fields, _mm_cvtsi32_si128(bits));
    }
    return table;
}

/* Bits below n, of which there are at most 64. */
INLINE uint64_t low_bits(int64_t n) { return n > 0 ? ~0ull >> (64 - n) : 0; }

/* Stores the first words of some; loads that follow find a whole store sooner than a masked one. */
INLINE void store_words(uint64_t *masks, int64_t left, int n, __m512i words) {
    if (left < n)
        _mm512_mask_storeu_epi64(masks, (__mmask8)low_bits(left), words);
    else if (n == 8)
        _mm512_storeu_si512(masks, words);
    else if (n == 4)
        _mm256_storeu_si256((__m256i *)(void *)masks, _mm512_castsi512_si256(words));
    else
        _mm_storeu_si128((__m128i *)(void *)masks, _mm512_castsi512_si128(words));
}

static void four_of_eight(const uint8_t *metadata, int64_t words, uint64_t *masks) {
    const uint64_t each = 0x0101010101010101, steps = 0x0706050403020100;
    const __m512i lanes = _mm512_setr_epi64(0, 1, 2, 3, 4, 5, 6, 7);
    const __m512i place = _mm512_add_epi8(_mm512_mullo_epi64(lanes, _mm512_set1_epi64((int64_t)(each * 3))),
                                          _mm512_set1_epi64((int64_t)steps));
    const __m512i one_hot = _mm512_broadcast_i32x4(_mm_setr_epi8(1, 2, 4, 8, 16, 32, 64, -128, 0, 0, 0, 0, 0, 0, 0, 0));
    for (int64_t word = 0; word < words; word += 2, metadata += 24) {
        const int64_t left = hc_min(2, words - word);
        const __m512i stored = _mm512_permutexvar_epi8(place, _mm512_maskz_loadu_epi8(low_bits(12 * left), metadata));
        const __m512i positions = _mm512_multishift_epi64_epi8(_mm512_set1_epi64((int64_t)(steps * 3)), stored);
        const __m512i kept = _mm512_shuffle_epi8(one_hot, _mm512_and_si512(positions, _mm512_set1_epi8(7)));
        const __m512i pairs = _mm512_or_si512(kept, _mm512_srli_epi16(kept, 8));
        const __m512i fours = _mm512_or_si512(pairs, _mm512_srli_epi32(pairs, 16));
        store_words(masks + word, left, 2, _mm512_castsi128_si512(_mm512_cvtepi32_epi8(fours)));
    }
}

static void one_of_sixteen(const uint8_t *metadata, int64_t words, uint64_t *masks) {
    for (int64_t word = 0; word < words; word += 8, metadata += 16) {
        const int64_t left = hc_min(8, words - word);
        const __m256i bytes = _mm256_cvtepu8_epi16(_mm_maskz_loadu_epi8((__mmask16)low_bits(2 * left), metadata));
        const __m256i nibbles =
            _mm256_and_si256(_mm256_or_si256(bytes, _mm256_slli_epi16(bytes, 4)), _mm256_set1_epi8(15));
        const __m512i kept = _mm512_sllv_epi16(_mm512_set1_epi16(1), _mm512_cvtepu8_epi16(nibbles));
        store_words(masks + word, left, 8, kept);
    }
}

int64_t hc_masks_nm_avx512vbmi(int n, int m, const uint8_t *metadata, int64_t bytes, int64_t words, uint64_t *masks) {
    const int position_bits = m == 2 ? 1 : m == 4 ? 2 : 3, bits = n * position_bits;
    (void)bytes;
    if (m == 8 && n == 4) {
        four_of_eight(metadata, words, masks);
        return words;
    }
    if (m == 16 && n == 1) {
        one_of_sixteen(metadata, words, masks);
        return words;
    }
    if ((m != 2 && m != 4 && m != 8) || bits > 6)
        return 0;
    const __m512i table = make_table(n, position_bits), below = _mm512_set1_epi8((char)((1 << bits) - 1));
    __m512i eighths = _mm512_setzero_si512(), shifts = eighths; /* bytes of 8 blocks to an eighth; their fields in it */
    const __m512i places = count_bytes();
    const __m512i block = _mm512_and_si512(places, _mm512_set1_epi8(7));
    const __m512i eighth = _mm512_and_si512(_mm512_srli_epi16(places, 3), _mm512_set1_epi8(7));
    for (int i = 0; i < bits; i++) {
        eighths = _mm512_add_epi8(eighths, eighth);
        shifts = _mm512_add_epi8(shifts, block);
    }
    eighths = _mm512_add_epi8(eighths, block);
    for (int64_t word = 0; word < words; word += m, metadata += 8 * bits) {
        const int64_t left = hc_min(m, words - word);
        const __mmask64 loaded = low_bits(8 * bits / m * left);
        const __m512i stored = _mm512_permutexvar_epi8(eighths, _mm512_maskz_loadu_epi8(loaded, metadata));
        const __m512i fields = _mm512_and_si512(_mm512_multishift_epi64_epi8(shifts, stored), below);
        const __m512i kept = _mm512_permutexvar_epi8(fields, table);
        const __m512i pairs = _mm512_or_si512(kept, _mm512_srli_epi16(kept, 8 - (m & 7)));
        if (m == 8)
            store_words(masks + word, left, 8, kept);
        else if (m == 4)
            store_words(masks + word, left, 4, _mm512_castsi256_si512(_mm512_cvtepi16_epi8(pairs)));
        else {
            const __m512i fours = _mm512_or_si512(_mm512_and_si512(pairs, _mm512_set1_epi16(15)),
                                                  _mm512_slli_epi16(_mm512_srli_epi32(pairs, 16), 4));
            store_words(masks + word, left, 2, _mm512_castsi128_si512(_mm512_cvtepi32_epi8(fours)));
        }
    }
    return words;
}
