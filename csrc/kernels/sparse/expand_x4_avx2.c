/* Kept nibbles back in their places, 16 at a time: nibbles of a mask take them in order. */
#include "kernels/kernel.h"

#include <immintrin.h>
#include <string.h>

void hc_expand_x4_avx2(int64_t words, const uint64_t *masks, const void *kept, void *out) {
    const uint8_t *next = kept;
    uint8_t *to = out;
    uint64_t total = 0;
    for (int64_t word = 0; word < words; word++)
        total += (uint64_t)_mm_popcnt_u64(masks[word]);
    const uint64_t bytes = (total + 1) / 2;
    uint64_t t = 0; /* nibbles that are placed */
    for (int64_t word = 0; word < words; word++)
        for (int i = 0; i < 4; i++, to += 8) {
            const unsigned bits = (unsigned)(masks[word] >> 16 * i & 0xffff);
            const uint64_t places = _pdep_u64(bits, 0x1111111111111111u) * 15, at = t / 2;
            uint64_t some = 0, last = 0;
            if (at + 9 <= bytes) {
                memcpy(&some, next + at, 8);
                last = next[at + 8];
            } else {
                uint8_t end[9] = {0};
                for (uint64_t j = at; j < bytes; j++)
                    end[j - at] = next[j];
                memcpy(&some, end, 8);
                last = end[8];
            }
            if (t % 2)
                some = some >> 4 | last << 60;
            some = _pdep_u64(some, places);
            memcpy(to, &some, 8);
            t += (uint64_t)_mm_popcnt_u32(bits);
        }
}
