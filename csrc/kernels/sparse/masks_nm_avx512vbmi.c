/* masks_nm of blocks whose positions have at most 6 bits: 64 blocks at a time, one byte each. The bit field of a block
 * is looked up in a table of 64 bytes; then the m bits of each byte are packed.
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

int64_t hc_masks_nm_avx512vbmi(int n, int m, const uint8_t *metadata, int64_t bytes, int64_t words, uint64_t *masks) {
    const int position_bits = m == 2 ? 1 : m == 4 ? 2 : 3, bits = n * position_bits;
    if ((m != 2 && m != 4 && m != 8) || bits > 6)
        return 0;
    (void)bytes;
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
    const __mmask64 loaded = ~0ull >> (64 - 8 * bits);
    int64_t word = 0;
    for (; word + m <= words; word += m, metadata += 8 * bits) {
        const __m512i stored = _mm512_permutexvar_epi8(eighths, _mm512_maskz_loadu_epi8(loaded, metadata));
        const __m512i fields = _mm512_and_si512(_mm512_multishift_epi64_epi8(shifts, stored), below);
        const __m512i kept = _mm512_permutexvar_epi8(fields, table);
        const __m512i pairs = _mm512_or_si512(kept, _mm512_srli_epi16(kept, 8 - (m & 7)));
        if (m == 8)
            _mm512_storeu_si512(masks + word, kept);
        else if (m == 4)
            _mm256_storeu_si256((__m256i *)(void *)(masks + word), _mm512_cvtepi16_epi8(pairs));
        else {
            const __m512i fours = _mm512_or_si512(_mm512_and_si512(pairs, _mm512_set1_epi16(15)),
                                                  _mm512_slli_epi16(_mm512_srli_epi32(pairs, 16), 4));
            _mm_storeu_si128((__m128i *)(void *)(masks + word), _mm512_cvtepi32_epi8(fours));
        }
    }
    return word;
}
