/* Expands 8-bit nonzeros to their columns, 16 at a time; kernels/sparse/nm.h. */
#include "kernels/sparse/arm/expand_arm.h"

static inline __attribute__((always_inline)) int64_t expand_word(uint64_t mask, const uint8_t *next, int64_t left,
                                                                 bool may_end, uint8_t *to) {
    int64_t t = 0; /* bytes that are placed */
    for (int i = 0; i < 4; i++, to += 16) {
        int count;
        const uint8x16_t places = places_of((uint16_t)(mask >> 16 * i), &count);
        vst1q_u8(to, vqtbl1q_u8(next_bytes(next + t, left - t, may_end), places));
        t += count;
    }
    return t;
}

void hc_expand_x8_neon(int64_t words, const uint64_t *masks, const void *kept, void *out) {
    const uint8_t *next = kept;
    uint8_t *to = out;
    const int64_t all = count_bits(words, masks);
    int64_t t = 0, word = 0;
    for (; word < words && all - t >= 64 + 16; word++)
        t += expand_word(masks[word], next + t, all - t, false, to + 64 * word);
    for (; word < words; word++)
        t += expand_word(masks[word], next + t, all - t, true, to + 64 * word);
}
