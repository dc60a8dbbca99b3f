/* Kept items back in their places: expanded in a register of 32- or 64-bit items, smaller ones widened on the way.
 * Loads are masked: nothing behind the last kept item is read. */
#include "kernels/kernel.h"

#include <immintrin.h>

enum { STEP = 16 };

static inline __attribute__((always_inline)) void place(const int bytes, int64_t words, const uint64_t *bits,
                                                        const char *kept, char *items) {
    for (int64_t word = 0; word < words; word++)
        for (int i = 0; i < 64; i += STEP, items += STEP * bytes) {
            const __mmask16 mask = (__mmask16)(bits[word] >> i);
            const int count = _mm_popcnt_u32(mask);
            const __mmask16 low = (__mmask16)((1u << count) - 1);
            if (bytes == 8) {
                const __mmask8 first = (__mmask8)mask, second = (__mmask8)(mask >> 8);
                const int some = _mm_popcnt_u32(first);
                const __m512i a = _mm512_maskz_loadu_epi64((__mmask8)((1u << some) - 1), kept);
                const __m512i b = _mm512_maskz_loadu_epi64((__mmask8)((1u << (count - some)) - 1), kept + some * 8);
                _mm512_storeu_si512(items, _mm512_maskz_expand_epi64(first, a));
                _mm512_storeu_si512(items + 64, _mm512_maskz_expand_epi64(second, b));
            } else if (bytes == 4) {
                const __m512i packed = _mm512_maskz_loadu_epi32(low, kept);
                _mm512_storeu_si512(items, _mm512_maskz_expand_epi32(mask, packed));
            } else if (bytes == 2) {
                const __m512i packed = _mm512_cvtepu16_epi32(_mm256_maskz_loadu_epi16(low, kept));
                const __m256i narrow = _mm512_cvtepi32_epi16(_mm512_maskz_expand_epi32(mask, packed));
                _mm256_storeu_si256((__m256i *)items, narrow);
            } else {
                const __m512i packed = _mm512_cvtepu8_epi32(_mm_maskz_loadu_epi8(low, kept));
                const __m128i narrow = _mm512_cvtepi32_epi8(_mm512_maskz_expand_epi32(mask, packed));
                _mm_storeu_si128((__m128i *)items, narrow);
            }
            kept += count * bytes;
        }
}

void hc_bitmap_expand_avx512(int bytes, int64_t words, const uint64_t *bits, const void *kept, void *items) {
    if (bytes == 8)
        place(8, words, bits, kept, items);
    else if (bytes == 4)
        place(4, words, bits, kept, items);
    else if (bytes == 2)
        place(2, words, bits, kept, items);
    else
        place(1, words, bits, kept, items);
}
