/* hc_bitmap_mark_scalar, hc_bitmap_compress_scalar and hc_bitmap_expand_scalar: kernels/compressed/compressed.h. */
#include "kernels/compressed/bitmap.h"

#include <string.h>

/* One bit per item: whether any of its bits is set. */
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

HC_BITMAP_MARK(scalar)

/* The items whose bit is set, contiguously. */
static inline __attribute__((always_inline)) void keep(const int bytes, int64_t words, const uint64_t *bits,
                                                       const char *items, char *kept) {
    for (int64_t word = 0; word < words; word++, items += 64 * bytes)
        for (uint64_t left = bits[word]; left; left &= left - 1, kept += bytes) {
            memcpy(kept, items + __builtin_ctzll(left) * bytes, (size_t)bytes);
        }
}

HC_BITMAP_COMPRESS(scalar)

/* Kept items at the positions of the set bits, zeros elsewhere. */
static inline __attribute__((always_inline)) void place(const int bytes, int64_t words, const uint64_t *bits,
                                                        const char *kept, char *items) {
    for (int64_t word = 0; word < words; word++, items += 64 * bytes) {
        memset(items, 0, (size_t)(64 * bytes));
        for (uint64_t left = bits[word]; left; left &= left - 1, kept += bytes)
            memcpy(items + __builtin_ctzll(left) * bytes, kept, (size_t)bytes);
    }
}

HC_BITMAP_EXPAND(scalar)
