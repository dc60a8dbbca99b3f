/* Kept items back in their places, zeros between them; kernels/kernel.h. */
#include "kernels/kernel.h"

#include <string.h>

static inline __attribute__((always_inline)) void place(const int bytes, int64_t words, const uint64_t *bits,
                                                        const char *kept, char *items) {
    for (int64_t word = 0; word < words; word++, items += 64 * bytes) {
        memset(items, 0, (size_t)(64 * bytes));
        for (uint64_t left = bits[word]; left; left &= left - 1, kept += bytes)
            memcpy(items + __builtin_ctzll(left) * bytes, kept, (size_t)bytes);
    }
}

void hc_bitmap_expand_scalar(int bytes, int64_t words, const uint64_t *bits, const void *kept, void *items) {
    if (bytes == 8)
        place(8, words, bits, kept, items);
    else if (bytes == 4)
        place(4, words, bits, kept, items);
    else if (bytes == 2)
        place(2, words, bits, kept, items);
    else
        place(1, words, bits, kept, items);
}
