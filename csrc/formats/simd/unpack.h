/* Bit-packed codes to bytes, and the chunks of a row in which tiles are decoded. The SIMD set provides simd_unpack4 and
 * simd_unpack. */
#ifndef HC_UNPACK_H
#define HC_UNPACK_H

#include "formats/simd/simd.h"

enum { CHUNK = 1024 };

/* Columns [column, column + n) of a row. */
typedef struct {
    int64_t row, column, n, first_group;
} hc_chunk;

/* for every chunk of row i of the tile: load_chunk fills `terms` with its codes and the terms of its groups */
#define HC_FOR_CHUNKS(i, terms)                                                                                        \
    for (hc_chunk chunk = {.row = tile->first_row + (i), .column = tile->first_column};                                \
         chunk.column < tile->first_column + tile->columns &&                                                          \
         (chunk.n = hc_min(CHUNK, tile->first_column + tile->columns - chunk.column),                                  \
         chunk.first_group = chunk.column / geometry->group, load_chunk(format, geometry, components, &chunk, &terms), \
         true);                                                                                                        \
         chunk.column += chunk.n)

/* Codes [first, first + n) of a row as bytes, signed ones sign-extended; first is a multiple of 8; writes up to 7
 * more. */
static inline void unpack_codes(const uint8_t *row, int64_t row_bytes, int64_t first, int64_t n, int bits,
                                bool is_signed, uint8_t *out) {
    const uint8_t *from = row + first / 8 * bits, *const end = row + row_bytes;
    int64_t i = 0;
    if (bits == 8) {
        memcpy(out, from, (size_t)n);
        return;
    }
    i = bits == 4 ? simd_unpack4(from, n, is_signed, out) : simd_unpack(from, end, n, bits, is_signed, out);
    from += i / 8 * bits;
    const int64_t first_left = i;
    const uint64_t mask = 0x0101010101010101u * ((1u << bits) - 1);
    for (; i < n; i += 8, from += bits) {
        uint64_t word = 0;
        if (end - from >= 8) {
            memcpy(&word, from, 8);
        } else if (row_bytes >= 8) {
            memcpy(&word, end - 8, 8);
            word >>= 8 * (8 - (end - from));
        } else {
            memcpy(&word, from, (size_t)hc_min(bits, end - from));
        }
        word = simd_deposit_bits(word, mask);
        memcpy(out + i, &word, 8);
    }
    if (!is_signed)
        return;
    const uint8_t sign = (uint8_t)(1 << (bits - 1));
    for (i = first_left; i < n; i++)
        out[i] = (uint8_t)((out[i] ^ sign) - sign);
}

/* Columns of a tile's row whose codes are the integers, from a multiple of 8 on, written directly to the result. */
static inline void plain_integers(const hc_geometry *geometry, const hc_components *components, const hc_tile *tile,
                                  int64_t i, int bits, bool is_signed, const hc_int_tile *out) {
    const int64_t row_bytes = (geometry->padded * bits + 7) / 8;
    const int64_t whole = bits == 8 ? tile->columns : tile->columns & ~(int64_t)7;
    const uint8_t *codes = hc_part(components, HC_CODES, tile->first_row + i);
    uint8_t *to = (uint8_t *)out->limb[0] + i * out->ld, last[HC_CACHE_LINE];
    const int64_t tile_bytes = tile->columns * bits / 8; /* prefetches the columns of the next tile: */
    for (int64_t ahead = tile_bytes; ahead < 2 * tile_bytes; ahead += HC_CACHE_LINE)
        __builtin_prefetch((const char *)codes + tile->first_column * bits / 8 + ahead, 0, 3);
    unpack_codes(codes, row_bytes, tile->first_column, whole, bits, is_signed, to);
    if (whole < tile->columns) {
        const int64_t left = tile->columns - whole;
        unpack_codes(codes, row_bytes, tile->first_column + whole, left, bits, is_signed, last);
        memcpy(to + whole, last, (size_t)left);
    }
}

/* Numbers [first, first + n) of `bits` bits, any first and up to 10 bits, as int32. */
static inline void unpack_numbers(const uint8_t *row, int64_t row_bytes, int64_t first, int64_t n, int bits,
                                  int32_t *out) {
    if (bits <= 8) {
        uint8_t bytes[8 + CHUNK + 8 + 8];
        const int64_t start = first & ~(int64_t)7, skip = first - start;
        HC_ASSUME(n <= CHUNK + 8);
        unpack_codes(row, row_bytes, start, n + skip, bits, false, bytes);
        for (int64_t i = 0; i < n; i++)
            out[i] = bytes[skip + i];
        return;
    }
    for (int64_t i = 0; i < n; i++) {
        const int64_t bit = (first + i) * bits, byte = bit >> 3;
        uint32_t word = row[byte];
        for (int64_t j = 1; j <= ((bit + bits - 1) >> 3) - byte; j++)
            word |= (uint32_t)row[byte + j] << (8 * j);
        out[i] = (int32_t)(word >> (bit & 7) & ((1u << bits) - 1));
    }
}

#endif
