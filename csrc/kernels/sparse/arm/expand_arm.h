/* The next items for 16 columns: the number of bits below a column is the index of its item. */
#ifndef HC_EXPAND_ARM_H
#define HC_EXPAND_ARM_H

#include "kernels/kernel.h"

#include <arm_neon.h>

/* The index of each column of `marks` whose bit is set, otherwise 255; *count: the number of set bits. */
static inline uint8x16_t places_of(uint16_t marks, int *count) {
    static const uint8_t BITS[16] = {1, 2, 4, 8, 16, 32, 64, 128, 1, 2, 4, 8, 16, 32, 64, 128};
    static const uint8_t HALVES[16] = {0, 0, 0, 0, 0, 0, 0, 0, 1, 1, 1, 1, 1, 1, 1, 1};
    const uint8x16_t none = vdupq_n_u8(0), halves = vld1q_u8(HALVES);
    const uint8x16_t set = vtstq_u8(vqtbl1q_u8(vreinterpretq_u8_u16(vdupq_n_u16(marks)), halves), vld1q_u8(BITS));
    /* the running sum of set columns, 1, 2, 4 and 8 joined */
    uint8x16_t sum = vshrq_n_u8(set, 7);
    sum = vaddq_u8(sum, vextq_u8(none, sum, 15));
    sum = vaddq_u8(sum, vextq_u8(none, sum, 14));
    sum = vaddq_u8(sum, vextq_u8(none, sum, 12));
    sum = vaddq_u8(sum, vextq_u8(none, sum, 8));
    *count = vgetq_lane_u8(sum, 15);
    /* the index of a set column is its sum less 1; others are beyond any table */
    return vorrq_u8(vsubq_u8(sum, vdupq_n_u8(1)), vmvnq_u8(set));
}

static inline int64_t count_bits(int64_t words, const uint64_t *masks) {
    int64_t count = 0;
    for (int64_t word = 0; word < words; word++)
        count += __builtin_popcountll(masks[word]);
    return count;
}

/* The next 16 bytes; if the kept ones may end, `left` of them and then zeros. The last words have a loop of their own,
 * since no constant stays in a register across the call. */
static __attribute__((noinline)) uint8x16_t last_bytes(const uint8_t *next, int64_t left) {
    uint8_t last[16] = {0};
    for (int64_t i = 0; i < left && i < 16; i++)
        last[i] = next[i];
    return vld1q_u8(last);
}
static inline uint8x16_t next_bytes(const uint8_t *next, int64_t left, bool may_end) {
    return may_end ? last_bytes(next, left) : vld1q_u8(next);
}

#endif
