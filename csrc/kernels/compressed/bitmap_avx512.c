/* hc_bitmap_mark_avx512, hc_bitmap_compress_avx512 and hc_bitmap_expand_avx512: kernels/compressed/compressed.h. */
#include "kernels/compressed/bitmap.h"
#include "kernels/sparse/place_avx512.h"

enum { STEP = 16 };

/* One bit per item: whether any of its bits is set, one register of items at a time. */
static inline __attribute__((always_inline)) uint64_t bits_of(const int bytes, const char *items) {
    const __m512i x = _mm512_loadu_si512(items);
    return bytes == 8   ? _mm512_test_epi64_mask(x, x)
           : bytes == 4 ? _mm512_test_epi32_mask(x, x)
           : bytes == 2 ? _mm512_test_epi16_mask(x, x)
                        : _mm512_test_epi8_mask(x, x);
}

static inline __attribute__((always_inline)) void mark(const int bytes, int64_t words, const char *items,
                                                       uint64_t *bits) {
    for (int64_t word = 0; word < words; word++) {
        uint64_t found = 0;
        for (int i = 0; i < bytes; i++, items += 64)
            found |= bits_of(bytes, items) << (64 / bytes * i);
        bits[word] = found;
    }
}

HC_BITMAP_MARK(avx512)

/* bitmap_compress: registers of 32- or 64-bit items are compressed and stored up to the last kept item. Smaller items
 * are widened first. */
static inline __attribute__((always_inline)) void keep(const int bytes, int64_t words, const uint64_t *bits,
                                                       const char *items, char *kept) {
    for (int64_t word = 0; word < words; word++)
        for (int i = 0; i < 64; i += STEP, items += STEP * bytes) {
            const __mmask16 mask = (__mmask16)(bits[word] >> i);
            const int count = _mm_popcnt_u32(mask);
            const __mmask16 low = (__mmask16)((1u << count) - 1);
            if (bytes == 8) {
                const __mmask8 first = (__mmask8)mask, second = (__mmask8)(mask >> 8);
                const int some = _mm_popcnt_u32(first);
                const __m512i a = hc_compress_x64(first, _mm512_loadu_si512(items));
                const __m512i b = hc_compress_x64(second, _mm512_loadu_si512(items + 64));
                _mm512_mask_storeu_epi64(kept, (__mmask8)((1u << some) - 1), a);
                _mm512_mask_storeu_epi64(kept + some * 8, (__mmask8)((1u << (count - some)) - 1), b);
            } else if (bytes == 4) {
                _mm512_mask_storeu_epi32(kept, low, hc_compress_x32(mask, _mm512_loadu_si512(items)));
            } else if (bytes == 2) {
                const __m512i wide = _mm512_cvtepu16_epi32(_mm256_loadu_si256((const __m256i *)items));
                const __m256i narrow = _mm512_cvtepi32_epi16(hc_compress_x32(mask, wide));
                _mm256_mask_storeu_epi16(kept, low, narrow);
            } else {
                const __m512i wide = _mm512_cvtepu8_epi32(_mm_loadu_si128((const __m128i *)items));
                const __m128i narrow = _mm512_cvtepi32_epi8(hc_compress_x32(mask, wide));
                _mm_mask_storeu_epi8(kept, low, narrow);
            }
            kept += count * bytes;
        }
}

HC_BITMAP_COMPRESS(avx512)

/* bitmap_expand: kept items are expanded in registers of 32- or 64-bit items. Smaller items are widened first. Loads
 * are masked: nothing after the last kept item is read. */
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
                _mm512_storeu_si512(items, hc_expand_x64(first, a));
                _mm512_storeu_si512(items + 64, hc_expand_x64(second, b));
            } else if (bytes == 4) {
                const __m512i packed = _mm512_maskz_loadu_epi32(low, kept);
                _mm512_storeu_si512(items, hc_expand_x32(mask, packed));
            } else if (bytes == 2) {
                const __m512i packed = _mm512_cvtepu16_epi32(_mm256_maskz_loadu_epi16(low, kept));
                const __m256i narrow = _mm512_cvtepi32_epi16(hc_expand_x32(mask, packed));
                _mm256_storeu_si256((__m256i *)items, narrow);
            } else {
                const __m512i packed = _mm512_cvtepu8_epi32(_mm_maskz_loadu_epi8(low, kept));
                const __m128i narrow = _mm512_cvtepi32_epi8(hc_expand_x32(mask, packed));
                _mm_storeu_si128((__m128i *)items, narrow);
            }
            kept += count * bytes;
        }
}

HC_BITMAP_EXPAND(avx512)
