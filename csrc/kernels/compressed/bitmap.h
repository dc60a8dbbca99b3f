/* The kernels of bitmaps (kernels/compressed/compressed.h), from three functions of the including file, for which the
 * bytes of an item are a constant: mark(bytes, words, items, bits), keep(bytes, words, bits, items, kept) and
 * place(bytes, words, bits, kept, items). */
#include "kernels/kernel.h"

#define HC_BY_BYTES(function, ...)                                                                                     \
    if (bytes == 8)                                                                                                    \
        function(8, __VA_ARGS__);                                                                                      \
    else if (bytes == 4)                                                                                               \
        function(4, __VA_ARGS__);                                                                                      \
    else if (bytes == 2)                                                                                               \
        function(2, __VA_ARGS__);                                                                                      \
    else                                                                                                               \
        function(1, __VA_ARGS__)

#define HC_BITMAP_MARK(isa)                                                                                            \
    void hc_bitmap_mark_##isa(int bytes, int64_t words, const void *items, uint64_t *bits) {                           \
        HC_BY_BYTES(mark, words, items, bits);                                                                         \
    }

#define HC_BITMAP_COMPRESS(isa)                                                                                        \
    void hc_bitmap_compress_##isa(int bytes, int64_t words, const uint64_t *bits, const void *items, void *kept) {     \
        HC_BY_BYTES(keep, words, bits, items, kept);                                                                   \
    }

#define HC_BITMAP_EXPAND(isa)                                                                                          \
    void hc_bitmap_expand_##isa(int bytes, int64_t words, const uint64_t *bits, const void *kept, void *items) {       \
        HC_BY_BYTES(place, words, bits, kept, items);                                                                  \
    }
