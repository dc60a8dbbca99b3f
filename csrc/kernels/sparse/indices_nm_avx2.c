/* Positions to indices, eight at a time: their bit fields are spread to eight bytes. */
#include "kernels/kernel.h"

#include <immintrin.h>
#include <string.h>

int64_t hc_indices_nm_avx2(int m, const uint8_t *metadata, int64_t bytes, const uint16_t *base, int64_t count,
                           uint16_t *at) {
    const int bits = hc_position_bits(m);
    const uint64_t fields = ((1u << bits) - 1) * UINT64_C(0x0101010101010101);
    const __m128i most = _mm_set1_epi8((char)(m - 1));
    int64_t t = 0;
    for (int64_t byte = 0; t + 8 <= count && byte + 8 <= bytes; t += 8, byte += bits) {
        uint64_t word;
        memcpy(&word, metadata + byte, sizeof word);
        const __m128i position = _mm_min_epu8(_mm_cvtsi64_si128((int64_t)_pdep_u64(word, fields)), most);
        const __m128i begin = _mm_loadu_si128((const __m128i *)(const void *)(base + t));
        _mm_storeu_si128((__m128i *)(void *)(at + t), _mm_add_epi16(begin, _mm_cvtepu8_epi16(position)));
    }
    return t;
}
