/* Kept units of 32 bits back in their places; kernels/kernel.h. */
#include "kernels/kernel.h"

void hc_expand_x32_scalar(int64_t words, const uint64_t *masks, const void *kept, void *out) {
    const uint32_t *next = kept;
    uint32_t *to = out;
    for (int64_t word = 0; word < words; word++)
        for (int k = 0; k < 64; k++)
            *to++ = masks[word] >> k & 1 ? *next++ : 0;
}
