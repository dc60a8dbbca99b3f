/* What the lines of choose_nm share.
 *
 * 2:4: every value meets the three others of its quad at once. Scores compare as integers. The other at distance r (its
 * lane is (i + r) % 4) beats value i if it is larger, or equal and of a lower lane: a_j > a_i - [j < i]. A value that two
 * others beat goes.
 *
 * N:8: the same at distances 1 to 4; bits of 64 values are counted at once. 1:M: blocks in lanes, one register a place,
 * the first place of the maximum.
 */
#ifndef HC_CHOOSE_NM_H
#define HC_CHOOSE_NM_H

#include <immintrin.h>
#include <stdbool.h>
#include <stdint.h>
#include <string.h>

enum { HC_LARGEST_MAGNITUDE = 0x7f800000, HC_AHEAD = 4096 }; /* of an infinity, above are NaNs; bytes to prefetch */

/* The two positions, 2 bits each, by the 4 bits of what a quad keeps. */
static const uint8_t HC_QUAD_CODE[16] = {[3] = 0x4, [5] = 0x8, [6] = 0x9, [9] = 0xc, [10] = 0xd, [12] = 0xe};

/* Bits of a value that two of the three beat. */
static inline uint32_t hc_beaten(uint32_t by_1, uint32_t by_2, uint32_t by_3) {
    return (by_1 & by_2) | (by_1 & by_3) | (by_2 & by_3);
}

static inline int64_t hc_first_nan(const float *x) {
    int64_t i = 0;
    while (x[i] == x[i])
        i++;
    return i;
}

/* Asks for what comes HC_AHEAD bytes behind x, inside the input or not. */
static inline void hc_fetch_ahead(const float *x, int floats) {
    for (int i = 0; i < floats; i += 16)
        _mm_prefetch((const char *)((uintptr_t)(x + i) + HC_AHEAD), _MM_HINT_T0);
}

/* Eight positions, a byte each -> `bits` bits each. */
static inline uint64_t hc_packed_positions(uint64_t positions, int bits) {
    return _pext_u64(positions, ((1u << bits) - 1) * UINT64_C(0x0101010101010101));
}

/* The positions in their bytes, 3 bits each, of the bits of two bytes that are set. */
static inline uint64_t hc_octets(uint64_t keep) {
    return _pext_u64(07654321076543210, _pdep_u64(keep & 0xffff, 01111111111111111) * 7);
}

/* The same of eight bytes that keep n each: 3 n bytes. */
static inline __attribute__((always_inline)) void hc_store_octets(uint64_t keep, int n, uint8_t *metadata) {
    const uint64_t low = hc_octets(keep) | hc_octets(keep >> 16) << 6 * n;
    const uint64_t high = hc_octets(keep >> 32) | hc_octets(keep >> 48) << 6 * n;
    memcpy(metadata, &low, (size_t)(3 * n / 2));
    memcpy(metadata + 3 * n / 2, &high, (size_t)(3 * n / 2));
}

/* Each byte turned upwards. */
static inline uint64_t hc_turned(uint64_t bytes, int by) {
    const uint64_t high = (UINT64_C(0x0101010101010101) << by) - UINT64_C(0x0101010101010101);
    return (bytes << by & ~high) | (bytes >> (8 - by) & high);
}

static inline void hc_add_bits(uint64_t a, uint64_t b, uint64_t c, uint64_t *sum, uint64_t *carry) {
    *sum = a ^ b ^ c;
    *carry = (a & b) | (c & (a ^ b));
}

/* Of eight blocks of eight values, bit i of byte b of by[r - 1]: value i of block b is beaten by the one at distance r;
 * at 5 to 7 the same pairs meet from the other side. Bits of those that fewer than n beat, n 2 or 4. */
static inline __attribute__((always_inline)) uint64_t hc_stay(const uint64_t by[4], int n) {
    uint64_t one, two[3], twos, fours;
    hc_add_bits(by[0], by[1], by[2], &one, &two[0]);
    hc_add_bits(one, ~hc_turned(by[0], 1), ~hc_turned(by[1], 2), &one, &two[1]);
    hc_add_bits(one, by[3], ~hc_turned(by[2], 3), &one, &two[2]);
    hc_add_bits(two[0], two[1], two[2], &twos, &fours);
    return n == 4 ? ~fours : ~(fours | twos);
}

/* `at_once` blocks, always whole; returns false where a score is NaN. */
typedef bool hc_choose_blocks(int n, int m, const float *x, const float *scores, float *values, uint8_t *metadata);

/* All blocks: the last few through memory of our own. at_once: 8 or 16. */
static inline __attribute__((always_inline)) int64_t hc_choose_all(hc_choose_blocks *choose, int at_once, int n, int m,
                                                                   int bits, int64_t blocks, const float *x,
                                                                   const float *scores, float *values,
                                                                   uint8_t *metadata) {
    const float *by = scores ? scores : x;
    int64_t b = 0;
    for (; b + at_once <= blocks; b += at_once) {
        if (!choose(n, m, x + b * m, scores ? scores + b * m : NULL, values + b * n, metadata + b * n * bits / 8))
            return b * m + hc_first_nan(by + b * m);
    }
    const int64_t rest = blocks - b;
    if (rest == 0)
        return -1;
    float some[16 * 16] = {0}, some_scores[16 * 16] = {0}, kept[16 * 8];
    uint8_t codes[16 * 8 * 3 / 8];
    memcpy(some, x + b * m, (size_t)(rest * m) * sizeof *some);
    if (scores)
        memcpy(some_scores, scores + b * m, (size_t)(rest * m) * sizeof *some);
    if (!choose(n, m, some, scores ? some_scores : NULL, kept, codes))
        return b * m + hc_first_nan(by + b * m);
    const int64_t code_bits = rest * n * bits;
    if (code_bits % 8)
        codes[code_bits / 8] &= (uint8_t)((1 << code_bits % 8) - 1);
    memcpy(values + b * n, kept, (size_t)(rest * n) * sizeof *kept);
    memcpy(metadata + b * n * bits / 8, codes, (size_t)((code_bits + 7) / 8));
    return -1;
}

#endif
