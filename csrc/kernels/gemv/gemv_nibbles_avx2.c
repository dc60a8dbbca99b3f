/* gemv_nibbles: a 32-bit word gets the `bits` bytes of 8 codes. Then its upper 4 codes move to the upper half, the upper 2
 * of each half to the upper byte, and the upper one of each byte to the upper 4 bits.
 */
#include "kernels/gemv/gemv_nibbles.h"

#include <immintrin.h>

/* Moves the upper half of the codes of each field up; low: the mask of the others. */
static inline __m256i spread(__m256i words, __m256i low, __m128i up) {
    const __m256i kept = _mm256_and_si256(words, low);
    return _mm256_or_si256(kept, _mm256_sll_epi32(_mm256_xor_si256(words, kept), up));
}

void hc_gemv_nibbles_avx2(const uint8_t *stored, int64_t row_bytes, int bits, int64_t n, uint8_t *out) {
    uint8_t at[16];
    for (int i = 0; i < 16; i++) /* an index of 128 gives 0 */
        at[i] = (uint8_t)(i % 4 < bits ? i / 4 * bits + i % 4 : 128);
    const __m256i bytes = _mm256_broadcastsi128_si256(_mm_loadu_si128((const __m128i *)(const void *)at));
    const __m256i four = _mm256_set1_epi32((1 << 4 * bits) - 1), two = _mm256_set1_epi16((short)((1 << 2 * bits) - 1));
    const __m256i one = _mm256_set1_epi8((char)((1 << bits) - 1));
    const __m128i by_four = _mm_cvtsi32_si128(16 - 4 * bits), by_two = _mm_cvtsi32_si128(8 - 2 * bits);
    const __m128i by_one = _mm_cvtsi32_si128(4 - bits);
    int64_t i = 0;
    for (; i + 64 <= n && row_bytes >= 4 * bits + 16; i += 64, stored += 8 * bits, row_bytes -= 8 * bits) {
        const __m256i both = _mm256_loadu2_m128i((const __m128i *)(const void *)(stored + 4 * bits),
                                                 (const __m128i *)(const void *)stored);
        __m256i words = spread(_mm256_shuffle_epi8(both, bytes), four, by_four);
        words = spread(spread(words, two, by_two), one, by_one);
        _mm256_storeu_si256((__m256i *)(void *)(out + i / 2), words);
    }
    spread_codes(stored, row_bytes, bits, n - i, out + i / 2);
}
