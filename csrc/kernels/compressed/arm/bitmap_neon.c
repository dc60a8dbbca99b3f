/* hc_bitmap_mark_neon: kernels/compressed/compressed.h. */
#include "kernels/compressed/bitmap.h"

#include <arm_neon.h>
#include <string.h>

#define INLINE static inline __attribute__((always_inline))

/* --- bitmap_mark: one bit per item, 16 items at a time --- */

/* Return a byte with all bits set for each of 16 items that is not 0. */
INLINE uint8x16_t marked(const int bytes, const uint8_t *items) {
    uint8x16_t part[8];
#pragma GCC unroll 8
    for (int i = 0; i < bytes; i++)
        part[i] = vld1q_u8(items + 16 * i);
    if (bytes == 1)
        return vtstq_u8(part[0], part[0]);
    uint16x8_t half[4]; /* 8 items each, narrowed to 16 bits; items of 2 bytes are 16 bits already */
#pragma GCC unroll 4
    for (int i = 0; i < bytes; i += 2) {
        if (bytes == 2) {
            const uint16x8_t low = vreinterpretq_u16_u8(part[0]), high = vreinterpretq_u16_u8(part[1]);
            return vmovn_high_u16(vmovn_u16(vtstq_u16(low, low)), vtstq_u16(high, high));
        }
        uint32x4_t low = vreinterpretq_u32_u8(part[i]), high = vreinterpretq_u32_u8(part[i + 1]);
        if (bytes == 8) { /* items of 8 bytes: the words of each are joined */
            low = vorrq_u32(vuzp1q_u32(low, high), vuzp2q_u32(low, high));
            half[i / 2] = vreinterpretq_u16_u32(vtstq_u32(low, low));
        } else {
            half[i / 2] = vmovn_high_u32(vmovn_u32(vtstq_u32(low, low)), vtstq_u32(high, high));
        }
    }
    if (bytes == 8)
#pragma GCC unroll 2
        for (int i = 0; i < 2; i++)
            half[i] =
                vmovn_high_u32(vmovn_u32(vreinterpretq_u32_u16(half[2 * i])), vreinterpretq_u32_u16(half[2 * i + 1]));
    return vmovn_high_u16(vmovn_u16(half[0]), half[1]);
}

INLINE void mark(const int bytes, int64_t words, const uint8_t *items, uint64_t *bits) {
    static const uint8_t BITS[16] = {1, 2, 4, 8, 16, 32, 64, 128, 1, 2, 4, 8, 16, 32, 64, 128};
    const uint8x16_t bit = vld1q_u8(BITS);
    for (int64_t word = 0; word < words; word++, items += 64 * bytes) {
        uint8x16_t part[4];
#pragma GCC unroll 4
        for (int i = 0; i < 4; i++)
            part[i] = vandq_u8(marked(bytes, items + 16 * i * bytes), bit);
        /* neighbours are added until each byte has the bits of 8 items */
        const uint8x16_t fours = vpaddq_u8(vpaddq_u8(part[0], part[1]), vpaddq_u8(part[2], part[3]));
        bits[word] = vgetq_lane_u64(vreinterpretq_u64_u8(vpaddq_u8(fours, fours)), 0);
    }
}

HC_BITMAP_MARK(neon)
