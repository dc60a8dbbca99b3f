/* One bit an item: whether any of its bits is set; kernels/kernel.h. */
#include "kernels/kernel.h"

#include <string.h>

static inline __attribute__((always_inline)) void mark(const int bytes, int64_t words, const char *items,
                                                       uint64_t *bits) {
    for (int64_t word = 0; word < words; word++) {
        uint64_t found = 0;
        for (int i = 0; i < 64; i++, items += bytes) {
            uint64_t item = 0;
            memcpy(&item, items, (size_t)bytes);
            found |= (uint64_t)(item != 0) << i;
        }
        bits[word] = found;
    }
}

void hc_bitmap_mark_scalar(int bytes, int64_t words, const void *items, uint64_t *bits) {
    if (bytes == 8)
        mark(8, words, items, bits);
    else if (bytes == 4)
        mark(4, words, items, bits);
    else if (bytes == 2)
        mark(2, words, items, bits);
    else
        mark(1, words, items, bits);
}
