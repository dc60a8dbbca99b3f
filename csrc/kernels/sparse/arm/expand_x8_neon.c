/* Expands 8-bit nonzeros to their columns, 16 at a time: the number of bits below a column is the index of its byte.
 * kernels/sparse/nm.h. */
#include "kernels/kernel.h"

#include <arm_neon.h>
#include <string.h>

void hc_expand_x8_neon(int64_t words, const uint64_t *masks, const void *kept, void *out) {
    static const uint8_t BITS[16] = {1, 2, 4, 8, 16, 32, 64, 128, 1, 2, 4, 8, 16, 32, 64, 128};
    static const uint8_t HALVES[16] = {0, 0, 0, 0, 0, 0, 0, 0, 1, 1, 1, 1, 1, 1, 1, 1};
    const uint8x16_t bit = vld1q_u8(BITS), halves = vld1q_u8(HALVES), none = vdupq_n_u8(0);
    const uint8_t *next = kept;
    uint8_t *to = out;
    int64_t left = 0; /* bytes that are not expanded yet */
    for (int64_t word = 0; word < words; word++)
        left += __builtin_popcountll(masks[word]);
    for (int64_t word = 0; word < words; word++)
        for (int i = 0; i < 4; i++, to += 16) {
            const uint16_t marks = (uint16_t)(masks[word] >> 16 * i);
            const uint8x16_t set = vtstq_u8(vqtbl1q_u8(vreinterpretq_u8_u16(vdupq_n_u16(marks)), halves), bit);
            /* the running sum of set columns, 1, 2, 4 and 8 joined */
            uint8x16_t sum = vshrq_n_u8(set, 7);
            sum = vaddq_u8(sum, vextq_u8(none, sum, 15));
            sum = vaddq_u8(sum, vextq_u8(none, sum, 14));
            sum = vaddq_u8(sum, vextq_u8(none, sum, 12));
            sum = vaddq_u8(sum, vextq_u8(none, sum, 8));
            const int count = vgetq_lane_u8(sum, 15);
            uint8x16_t bytes;
            if (left >= 16) {
                bytes = vld1q_u8(next);
            } else {
                uint8_t last[16] = {0};
                memcpy(last, next, (size_t)left);
                bytes = vld1q_u8(last);
            }
            /* the index of a set column is its sum less 1; others are beyond the table */
            const uint8x16_t places = vorrq_u8(vsubq_u8(sum, vdupq_n_u8(1)), vmvnq_u8(set));
            vst1q_u8(to, vqtbl1q_u8(bytes, places));
            next += count;
            left -= count;
        }
}
