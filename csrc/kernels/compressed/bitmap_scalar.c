/* Bitmaps: kernels/compressed/compressed.h. */
#include "kernels/kernel.h"

#include <string.h>

/* One bit an item: whether any of its bits is set. */
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

/* The items whose bit is set, one after the other. */
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

/* Kept items back in their places, zeros between them. */
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
