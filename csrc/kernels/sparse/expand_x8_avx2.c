/* Kept bytes back in their places, 8 at a time: bytes of a mask take them in order. */
#include "kernels/kernel.h"

#include <immintrin.h>
#include <string.h>

void hc_expand_x8_avx2(int64_t words, const uint64_t *masks, const void *kept, void *out) {
    const uint8_t *next = kept;
    uint8_t *to = out;
    int64_t left = 0; /* bytes that are not placed yet */
    for (int64_t word = 0; word < words; word++)
        left += _mm_popcnt_u64(masks[word]);
    for (int64_t word = 0; word < words; word++)
        for (int i = 0; i < 8; i++, to += 8) {
            const unsigned bits = (unsigned)(masks[word] >> 8 * i & 0xff);
            const int count = (int)_mm_popcnt_u32(bits);
            uint64_t bytes = 0;
            if (left >= 8)
                memcpy(&bytes, next, 8);
            else
                memcpy(&bytes, next, (size_t)count);
            bytes = _pdep_u64(bytes, _pdep_u64(bits, 0x0101010101010101u) * 0xff);
            memcpy(to, &bytes, 8);
            next += count;
            left -= count;
        }
}
