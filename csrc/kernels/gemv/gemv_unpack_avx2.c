/* gemv_unpack: 32 codes at a time. A code of at most 8 bits is in two bytes, which are shuffled to 16 bits; a
 * multiplication shifts it to the top of them. The rest of a row is unpacked 8 codes at a time by PDEP.
 */
#include "kernels/kernel.h"

#include <immintrin.h>
#include <string.h>

/* Byte offsets of codes [first, first + 8) in 16 bytes that begin with code 0 in bits [0, bits). */
static __m128i places(int bits, int first) {
    uint8_t at[16];
    for (int i = 0; i < 8; i++) {
        at[2 * i] = (uint8_t)((first + i) * bits / 8);
        at[2 * i + 1] = (uint8_t)((first + i) * bits / 8 + 1);
    }
    return _mm_loadu_si128((const __m128i *)at);
}

static int64_t unpack_32(const uint8_t *stored, int64_t row_bytes, int bits, int64_t n, uint8_t *out) {
    uint16_t factor[8];
    for (int i = 0; i < 8; i++) /* 16 - bits - offset, at least 1 */
        factor[i] = (uint16_t)(1 << (16 - bits - i * bits % 8));
    const __m256i shift = _mm256_broadcastsi128_si256(_mm_loadu_si128((const __m128i *)factor));
    const __m256i low = _mm256_broadcastsi128_si256(places(bits, 0));
    const __m256i high = _mm256_broadcastsi128_si256(places(bits, 8));
    const __m128i down = _mm_cvtsi32_si128(16 - bits);
    int64_t i = 0;
    for (; i + 32 <= n && row_bytes >= 2 * bits + 16; i += 32, stored += 4 * bits, row_bytes -= 4 * bits) {
        const __m256i both = _mm256_loadu2_m128i((const __m128i *)(stored + 2 * bits), (const __m128i *)stored);
        const __m256i a = _mm256_mullo_epi16(_mm256_shuffle_epi8(both, low), shift);
        const __m256i b = _mm256_mullo_epi16(_mm256_shuffle_epi8(both, high), shift);
        const __m256i codes = _mm256_packus_epi16(_mm256_srl_epi16(a, down), _mm256_srl_epi16(b, down));
        _mm256_storeu_si256((__m256i *)(out + i), codes);
    }
    return i;
}

void hc_gemv_unpack_avx2(const uint8_t *stored, int64_t row_bytes, int bits, int64_t n, uint8_t *out) {
    const uint64_t mask = 0x0101010101010101u * ((1u << bits) - 1);
    const uint8_t *const end = stored + row_bytes;
    int64_t i = bits < 8 ? unpack_32(stored, row_bytes, bits, n, out) : 0;
    stored += i / 8 * bits;
    for (; i < n && end - stored >= 8; i += 8, stored += bits) {
        uint64_t word;
        memcpy(&word, stored, 8);
        word = _pdep_u64(word, mask);
        memcpy(out + i, &word, 8);
    }
    for (; i < n; i += 8, stored += bits) {
        uint64_t word = 0;
        memcpy(&word, stored, (size_t)hc_min(bits, end - stored));
        word = _pdep_u64(word, mask);
        memcpy(out + i, &word, 8);
    }
}
