/* The items whose bit is set, one after the other; kernels/kernel.h. */
#include "kernels/kernel.h"

#include <string.h>

static inline __attribute__((always_inline)) void keep(const int bytes, int64_t words, const uint64_t *bits,
                                                       const char *items, char *kept) {
    for (int64_t word = 0; word < words; word++, items += 64 * bytes)
        for (uint64_t left = bits[word]; left; left &= left - 1, kept += bytes) {
            memcpy(kept, items + __builtin_ctzll(left) * bytes, (size_t)bytes);
        }
}

void hc_bitmap_compress_scalar(int bytes, int64_t words, const uint64_t *bits, const void *items, void *kept) {
    if (bytes == 8)
        keep(8, words, bits, items, kept);
    else if (bytes == 4)
        keep(4, words, bits, items, kept);
    else if (bytes == 2)
        keep(2, words, bits, items, kept);
    else
        keep(1, words, bits, items, kept);
}
