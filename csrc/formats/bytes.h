/* Conversion of packed codes of 1 to 8 bits to bytes and back, eight at a time: eight codes of b bits fill b bytes.
 *
 *   b = 3      76665554 44333222 111000..   ->   00000111 00000110 ... 00000000, code 0 in the lowest byte
 *
 * The bits are split in half three times: 8b bits to two runs of 4b bits in 32 bits each, then to four of 2b bits, then
 * to eight of b bits.
 */
#ifndef HC_BYTES_H
#define HC_BYTES_H

#include "base/base.h"

#include <string.h>

#define HC_EACH_BYTE UINT64_C(0x0101010101010101)

static inline uint64_t hc_low_bits(int bits) { return ((uint64_t)1 << bits) - 1; } /* bits < 64 */

static inline uint64_t hc_spread_codes(uint64_t x, int bits) {
    const uint64_t pairs = hc_low_bits(2 * bits) * UINT64_C(0x0000000100000001);
    const uint64_t single = hc_low_bits(bits) * UINT64_C(0x0001000100010001);
    x = (x & hc_low_bits(4 * bits)) | (x >> (4 * bits) & hc_low_bits(4 * bits)) << 32;
    x = (x & pairs) | (x >> (2 * bits) & pairs) << 16;
    return (x & single) | (x >> bits & single) << 8;
}

/* Bytes must have no bit above the code. */
static inline uint64_t hc_gather_codes(uint64_t x, int bits) {
    const uint64_t pairs = hc_low_bits(2 * bits) * UINT64_C(0x0000000100000001);
    const uint64_t single = hc_low_bits(bits) * UINT64_C(0x0001000100010001);
    x = (x & single) | (x >> 8 & single) << bits;
    x = (x & pairs) | (x >> 16 & pairs) << (2 * bits);
    return (x & hc_low_bits(4 * bits)) | (x >> 32 & hc_low_bits(4 * bits)) << (4 * bits);
}

/* A code repeated as eight packed codes. */
static inline uint64_t hc_repeat_code(uint64_t code, int bits) {
    uint64_t found = 0;
    for (int i = 0; i < 8; i++)
        found |= (code & hc_low_bits(bits)) << (i * bits);
    return found;
}

static inline __attribute__((always_inline)) void hc_unpack_bits(const uint8_t *from, int bits, int64_t n,
                                                                 uint8_t *to) {
    int64_t i = 0;
    for (; (n - i) * bits >= 64; i += 8, from += bits) { /* whole words; the upper bits are not used */
        uint64_t x;
        memcpy(&x, from, 8);
        x = hc_spread_codes(x, bits);
        memcpy(to + i, &x, 8);
    }
    for (; i + 8 <= n; i += 8, from += bits) {
        uint64_t x = 0;
        memcpy(&x, from, (size_t)bits);
        x = hc_spread_codes(x, bits);
        memcpy(to + i, &x, 8);
    }
    if (i < n) {
        uint64_t x = 0;
        memcpy(&x, from, (size_t)(((n - i) * bits + 7) / 8));
        x = hc_spread_codes(x, bits);
        memcpy(to + i, &x, (size_t)(n - i));
    }
}

/* The first n codes of a row, one byte each; reads no byte after the last code. */
static inline void hc_unpack_bytes(const uint8_t *from, int bits, int64_t n, uint8_t *to) {
    if (n == 0)
        return;
    switch (bits) {
    case 1:
        hc_unpack_bits(from, 1, n, to);
        return;
    case 2:
        hc_unpack_bits(from, 2, n, to);
        return;
    case 3:
        hc_unpack_bits(from, 3, n, to);
        return;
    case 4:
        for (int64_t i = 0; i < n / 2; i++) {
            to[2 * i] = from[i] & 15;
            to[2 * i + 1] = from[i] >> 4;
        }
        if (n % 2)
            to[n - 1] = from[n / 2] & 15;
        return;
    case 5:
        hc_unpack_bits(from, 5, n, to);
        return;
    case 6:
        hc_unpack_bits(from, 6, n, to);
        return;
    case 7:
        hc_unpack_bits(from, 7, n, to);
        return;
    default:
        memcpy(to, from, (size_t)n);
    }
}

static inline __attribute__((always_inline)) void hc_pack_bits(const uint8_t *from, int bits, int64_t n, uint8_t *to) {
    int64_t i = 0;
    for (; (n - i) * bits >= 64; i += 8, to += bits) { /* the zeros after the eight codes are overwritten later */
        uint64_t x;
        memcpy(&x, from + i, 8);
        x = hc_gather_codes(x, bits);
        memcpy(to, &x, 8);
    }
    for (; i + 8 <= n; i += 8, to += bits) {
        uint64_t x;
        memcpy(&x, from + i, 8);
        x = hc_gather_codes(x, bits);
        memcpy(to, &x, (size_t)bits);
    }
    if (i < n) {
        uint64_t x = 0;
        memcpy(&x, from + i, (size_t)(n - i));
        x = hc_gather_codes(x, bits);
        memcpy(to, &x, (size_t)(((n - i) * bits + 7) / 8));
    }
}

/* Packs n codes to a row whose last byte is padded with zero bits; bits above a code are dropped. */
static inline void hc_pack_bytes(const uint8_t *from, int bits, int64_t n, uint8_t *to) {
    if (n == 0)
        return;
    switch (bits) {
    case 1:
        hc_pack_bits(from, 1, n, to);
        return;
    case 2:
        hc_pack_bits(from, 2, n, to);
        return;
    case 3:
        hc_pack_bits(from, 3, n, to);
        return;
    case 4:
        for (int64_t i = 0; i < n / 2; i++)
            to[i] = (uint8_t)((from[2 * i] & 15) | from[2 * i + 1] << 4);
        if (n % 2)
            to[n / 2] = from[n - 1] & 15;
        return;
    case 5:
        hc_pack_bits(from, 5, n, to);
        return;
    case 6:
        hc_pack_bits(from, 6, n, to);
        return;
    case 7:
        hc_pack_bits(from, 7, n, to);
        return;
    default:
        memcpy(to, from, (size_t)n);
    }
}

#endif
