/* Expands nonzeros to their columns: kernels/sparse/nm.h. */
#include "kernels/kernel.h"

/* Expands 4-bit nonzeros. */
void hc_expand_x4_scalar(int64_t words, const uint64_t *masks, const void *kept, void *out) {
    const uint8_t *next = kept;
    uint8_t *to = out;
    int64_t t = 0;
    for (int64_t word = 0; word < words; word++)
        for (int k = 0; k < 64; k += 2) {
            unsigned both = 0;
            for (int i = 0; i < 2; i++)
                if (masks[word] >> (k + i) & 1) {
                    both |= (next[t / 2] >> (t % 2 * 4) & 15u) << (i * 4);
                    t++;
                }
            *to++ = (uint8_t)both;
        }
}

/* Expands 8-bit nonzeros. */
void hc_expand_x8_scalar(int64_t words, const uint64_t *masks, const void *kept, void *out) {
    const uint8_t *next = kept;
    uint8_t *to = out;
    for (int64_t word = 0; word < words; word++)
        for (int k = 0; k < 64; k++)
            *to++ = masks[word] >> k & 1 ? *next++ : 0;
}

/* Expands 32-bit nonzeros. */
void hc_expand_x32_scalar(int64_t words, const uint64_t *masks, const void *kept, void *out) {
    const uint32_t *next = kept;
    uint32_t *to = out;
    for (int64_t word = 0; word < words; word++)
        for (int k = 0; k < 64; k++)
            *to++ = masks[word] >> k & 1 ? *next++ : 0;
}
