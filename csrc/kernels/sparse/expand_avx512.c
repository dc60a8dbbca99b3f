/* Expands 32-bit nonzeros, 16 at a time. */
#include "kernels/kernel.h"
#include "kernels/sparse/place_avx512.h"

void hc_expand_x32_avx512(int64_t words, const uint64_t *masks, const void *kept, void *out) {
    const int32_t *next = kept;
    int32_t *to = out;
    int64_t left = 0; /* nonzeros that are not expanded yet */
    for (int64_t word = 0; word < words; word++)
        left += _mm_popcnt_u64(masks[word]);
    for (int64_t word = 0; word < words; word++)
        for (int i = 0; i < 4; i++, to += 16) {
            const __mmask16 places = hc_load_mask16((const char *)(masks + word) + 2 * i);
            const unsigned count = (unsigned)_mm_popcnt_u32((unsigned)(masks[word] >> 16 * i) & 0xffff);
            __m512i codes =
                left >= 16 ? _mm512_loadu_si512(next) : _mm512_maskz_loadu_epi32((__mmask16)((1u << count) - 1), next);
            __asm__("" : "+v"(codes)); /* from a register: from memory it is slow on Zen 4 */
            _mm512_storeu_si512(to, hc_expand_x32(places, codes));
            next += count;
            left -= count;
        }
}
