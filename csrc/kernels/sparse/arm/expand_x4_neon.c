/* Expands 4-bit nonzeros to their columns, 16 at a time, as bytes, which are then joined; kernels/sparse/nm.h. */
#include "kernels/sparse/arm/expand_arm.h"

/* t: nibbles that are placed. */
static inline __attribute__((always_inline)) int64_t expand_word(uint64_t mask, const uint8_t *next, int64_t bytes,
                                                                 int64_t t, bool may_end, uint8_t *to) {
    for (int i = 0; i < 4; i++, to += 8) {
        int count;
        const uint8x16_t places = places_of((uint16_t)(mask >> 16 * i), &count);
        const uint8x16_t both = next_bytes(next + t / 2, bytes - t / 2, may_end);
        const uint8x16_t low = vandq_u8(both, vdupq_n_u8(15)), high = vshrq_n_u8(both, 4);
        const uint8x16x2_t nibbles = {{vzip1q_u8(low, high), vzip2q_u8(low, high)}};
        const uint8x16_t from = vqaddq_u8(places, vdupq_n_u8(t & 1)); /* 255 stays */
        const uint16x8_t pairs = vreinterpretq_u16_u8(vqtbl2q_u8(nibbles, from));
        vst1_u8(to, vmovn_u16(vorrq_u16(pairs, vshrq_n_u16(pairs, 4))));
        t += count;
    }
    return t;
}

void hc_expand_x4_neon(int64_t words, const uint64_t *masks, const void *kept, void *out) {
    const uint8_t *next = kept;
    uint8_t *to = out;
    const int64_t bytes = (count_bits(words, masks) + 1) / 2;
    int64_t t = 0, word = 0;
    for (; word < words && bytes - t / 2 >= 32 + 17; word++)
        t = expand_word(masks[word], next, bytes, t, false, to + 32 * word);
    for (; word < words; word++)
        t = expand_word(masks[word], next, bytes, t, true, to + 32 * word);
}
