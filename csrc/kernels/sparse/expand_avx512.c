/* Expands 32-bit nonzeros, 16 at a time. */
#include "kernels/kernel.h"

#include <immintrin.h>

void hc_expand_x32_avx512(int64_t words, const uint64_t *masks, const void *kept, void *out) {
    const int32_t *next = kept;
    int32_t *to = out;
    for (int64_t word = 0; word < words; word++)
        for (int i = 0; i < 4; i++, to += 16) {
            const __mmask16 places = (__mmask16)(masks[word] >> 16 * i);
            _mm512_storeu_si512(to, _mm512_maskz_expandloadu_epi32(places, next));
            next += _mm_popcnt_u32(places);
        }
}
