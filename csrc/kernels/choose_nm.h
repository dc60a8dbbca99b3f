/* What the lines of choose_nm share: 2:4 by comparing every value with the three others of its quad at once.
 *
 * Magnitudes compare as integers. The other at distance r (its lane is (i + r) % 4) beats value i if it is larger, or
 * equal and of a lower lane: a_j > a_i - [j < i]. A value that two others beat goes.
 */
#ifndef HC_CHOOSE_NM_H
#define HC_CHOOSE_NM_H

#include <stdint.h>

enum { HC_LARGEST_MAGNITUDE = 0x7f800000 }; /* of an infinity; above are NaNs */

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

#endif
