/* Definition of N:M patterns: choosing nonzeros, and positions to and from bits. */
#include "sparsity/nm.h"

#include <math.h>
#include <string.h>

/* The position in `bits` bits from `bit` on: at most 5 bits, so in two bytes. */
static inline int position_at(const uint8_t *metadata, int64_t bytes, int64_t bit, int bits, int m) {
    const int64_t at = bit / 8;
    const unsigned low = at < bytes ? metadata[at] : 0, high = at + 1 < bytes ? metadata[at + 1] : 0;
    const unsigned pair = low | high << 8;
    const int position = (int)(pair >> (bit % 8) & ((1u << bits) - 1));
    return position < m ? position : m - 1;
}

void hc_nm_masks(const uint8_t *metadata, int64_t kept, int n, int m, int64_t first_block, int64_t columns,
                 uint64_t *masks) {
    const int bits = hc_position_bits(m);
    const int64_t bytes = hc_ceil_div(kept * bits, 8);
    memset(masks, 0, (size_t)hc_ceil_div(columns, 64) * sizeof *masks);
    int64_t bit = first_block * n * bits;
    for (int64_t base = 0; base < columns; base += m)
        for (int i = 0; i < n; i++, bit += bits) {
            const int64_t k = base + position_at(metadata, bytes, bit, bits, m);
            if (k < columns)
                masks[k / 64] |= (uint64_t)1 << (k % 64);
        }
}

void hc_nm_positions(const uint8_t *metadata, int64_t kept, int m, int64_t first, int64_t count, uint8_t *positions) {
    const int bits = hc_position_bits(m);
    const int64_t bytes = hc_ceil_div(kept * bits, 8);
    const uint64_t mask = (1u << bits) - 1;
    for (int64_t t = first, end = first + count; t < end;) {
        /* 8 positions are `bits` bytes */
        const int64_t group = t / 8, from = t % 8, to = hc_min(8, end - group * 8), at = group * bits;
        uint64_t word = 0;
        memcpy(&word, metadata + at, (size_t)hc_max(hc_min(bits, bytes - at), 0));
        for (int64_t i = from; i < to; i++) {
            const int position = (int)(word >> (i * bits) & mask);
            *positions++ = (uint8_t)(position < m ? position : m - 1);
        }
        t = group * 8 + to;
    }
}
