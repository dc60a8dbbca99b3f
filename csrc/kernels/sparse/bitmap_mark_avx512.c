/* One bit an item: whether any of its bits is set, a register of items at a time. */
#include "kernels/kernel.h"

#include <immintrin.h>

static inline __attribute__((always_inline)) uint64_t bits_of(const int bytes, const char *items) {
    const __m512i x = _mm512_loadu_si512(items);
    return bytes == 8   ? _mm512_test_epi64_mask(x, x)
           : bytes == 4 ? _mm512_test_epi32_mask(x, x)
           : bytes == 2 ? _mm512_test_epi16_mask(x, x)
                        : _mm512_test_epi8_mask(x, x);
}

static inline __attribute__((always_inline)) void mark(const int bytes, int64_t words, const char *items,
                                                       uint64_t *bits) {
    for (int64_t word = 0; word < words; word++) {
        uint64_t found = 0;
        for (int i = 0; i < bytes; i++, items += 64)
            found |= bits_of(bytes, items) << (64 / bytes * i);
        bits[word] = found;
    }
}

void hc_bitmap_mark_avx512(int bytes, int64_t words, const void *items, uint64_t *bits) {
    if (bytes == 8)
        mark(8, words, items, bits);
    else if (bytes == 4)
        mark(4, words, items, bits);
    else if (bytes == 2)
        mark(2, words, items, bits);
    else
        mark(1, words, items, bits);
}
