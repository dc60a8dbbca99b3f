/* Expands 32-bit nonzeros to their columns, 4 at a time: kernels/sparse/nm.h. */
#include "kernels/sparse/arm/kept_arm.h"

void hc_expand_x32_neon(int64_t words, const uint64_t *masks, const void *kept, void *out) {
    const uint8_t *next = kept;
    uint8_t *to = out;
    int64_t left = 0;
    for (int64_t word = 0; word < words; word++)
        left += __builtin_popcountll(masks[word]);
    for (int64_t word = 0; word < words; word++)
        for (int i = 0; i < 16; i++, to += 16) {
            const unsigned bits = (unsigned)(masks[word] >> 4 * i & 15);
            const int count = __builtin_popcount(bits);
            vst1q_u8(to, placed(next_units(next, left), bits));
            next += 4 * count;
            left -= count;
        }
}
