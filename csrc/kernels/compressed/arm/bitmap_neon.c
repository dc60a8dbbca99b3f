/* hc_bitmap_mark_neon, hc_bitmap_compress_neon and hc_bitmap_expand_neon: kernels/compressed/compressed.h. */
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

/* --- bitmap_compress and bitmap_expand: eight items at a time --- */

/* Byte j of KEPT[marks]: the index of the j-th set bit. Byte i of PLACED[marks]: the number of set bits before bit i if it
 * is set, otherwise 255, which selects a zero. */
#define OF_BIT(marks, i, yes, at, no) ((marks) >> (i) & 1 ? (uint64_t)(yes) << 8 * (at) : (uint64_t)(no) << 8 * (i))
#define SET_BEFORE(marks, i) __builtin_popcount((unsigned)(marks) & ((1u << (i)) - 1))
#define KEPT_BIT(marks, i) OF_BIT(marks, i, i, SET_BEFORE(marks, i), 0)
#define PLACED_BIT(marks, i) OF_BIT(marks, i, SET_BEFORE(marks, i), i, 255)
#define ALL_BITS(bit, m) (bit(m, 0) | bit(m, 1) | bit(m, 2) | bit(m, 3) | bit(m, 4) | bit(m, 5) | bit(m, 6) | bit(m, 7))
#define FOUR(bit, m) ALL_BITS(bit, m), ALL_BITS(bit, (m) + 1), ALL_BITS(bit, (m) + 2), ALL_BITS(bit, (m) + 3)
#define SIXTEEN(bit, m) FOUR(bit, m), FOUR(bit, (m) + 4), FOUR(bit, (m) + 8), FOUR(bit, (m) + 12)
#define SIXTY_FOUR(bit, m) SIXTEEN(bit, m), SIXTEEN(bit, (m) + 16), SIXTEEN(bit, (m) + 32), SIXTEEN(bit, (m) + 48)
#define TABLE(bit) SIXTY_FOUR(bit, 0), SIXTY_FOUR(bit, 64), SIXTY_FOUR(bit, 128), SIXTY_FOUR(bit, 192)
static const uint64_t KEPT[256] = {TABLE(KEPT_BIT)}, PLACED[256] = {TABLE(PLACED_BIT)};

/* Byte i: the number of set bits in bytes 0 to i of a word. */
INLINE uint64_t counts_of(uint64_t word) {
    return vget_lane_u64(vreinterpret_u64_u8(vcnt_u8(vcreate_u8(word))), 0) * 0x0101010101010101u;
}

INLINE int64_t count_all(int64_t words, const uint64_t *bits) {
    int64_t count = 0;
    for (int64_t word = 0; word < words; word++)
        count += (int64_t)(counts_of(bits[word]) >> 56);
    return count;
}

/* Selects eight items of 1, 2 or 4 bytes by their indices; 255 gives 0. */
INLINE void select_eight(const int bytes, const uint64_t *which, const uint8_t *items, uint8_t *to) {
    const uint8x8_t index = vreinterpret_u8_u64(vld1_u64(which));
    if (bytes == 1) {
        vst1_u8(to, vtbl1_u8(vld1_u8(items), index));
        return;
    }
    const uint16x8_t first = bytes == 2 ? vshll_n_u8(index, 1) : vshll_n_u8(index, 2);
    const uint16x8_t twice = vsliq_n_u16(first, first, 8);
    if (bytes == 2) {
        const uint8x16_t each = vreinterpretq_u8_u16(vorrq_u16(twice, vdupq_n_u16(0x0100)));
        vst1q_u8(to, vqtbl1q_u8(vld1q_u8(items), each));
        return;
    }
    const uint16x8_t bytes_of = vreinterpretq_u16_u32(vdupq_n_u32(0x03020100));
    const uint16x8_t low = vorrq_u16(vzip1q_u16(twice, twice), bytes_of);
    const uint16x8_t high = vorrq_u16(vzip2q_u16(twice, twice), bytes_of);
    const uint8x16x2_t eight = vld1q_u8_x2(items);
    vst1q_u8(to, vqtbl2q_u8(eight, vreinterpretq_u8_u16(low)));
    vst1q_u8(to + 16, vqtbl2q_u8(eight, vreinterpretq_u8_u16(high)));
}

/* Every step writes eight items, even if it keeps fewer. So the last items of the output are copied one by one, and so
 * are items of 8 bytes and the items of words with few set bits, for which this takes fewer instructions. */
INLINE void keep(const int bytes, int64_t words, const uint64_t *bits, const uint8_t *items, uint8_t *kept) {
    int64_t left = bytes < 8 ? count_all(words, bits) : 0;
    for (int64_t word = 0; word < words; word++, items += 64 * bytes) {
        const uint64_t counts = bytes < 8 ? counts_of(bits[word]) : 0;
        const int count = (int)(counts >> 56);
        left -= count;
        if (count < 5 * bytes + 4 || left < 8) {
            for (uint64_t one = bits[word]; one; one &= one - 1, kept += bytes)
                memcpy(kept, items + __builtin_ctzll(one) * bytes, (size_t)bytes);
            continue;
        }
#pragma GCC unroll 8
        for (int i = 0; i < 8; i++) {
            const int64_t before = i ? counts >> 8 * (i - 1) & 255 : 0;
            select_eight(bytes, KEPT + (bits[word] >> 8 * i & 255), items + 8 * i * bytes, kept + before * bytes);
        }
        kept += count * bytes;
    }
}

HC_BITMAP_COMPRESS(neon)

/* Every step reads eight kept items, even if it places fewer. */
INLINE void place(const int bytes, int64_t words, const uint64_t *bits, const uint8_t *kept, uint8_t *items) {
    int64_t left = bytes < 8 ? count_all(words, bits) : 0;
    for (int64_t word = 0; word < words; word++, items += 64 * bytes) {
        const uint64_t counts = bytes < 8 ? counts_of(bits[word]) : 0;
        const int count = (int)(counts >> 56);
        left -= count;
        if (count < 5 * bytes + 4 || left < 8) {
            memset(items, 0, (size_t)(64 * bytes));
            for (uint64_t one = bits[word]; one; one &= one - 1, kept += bytes)
                memcpy(items + __builtin_ctzll(one) * bytes, kept, (size_t)bytes);
            continue;
        }
#pragma GCC unroll 8
        for (int i = 0; i < 8; i++) {
            const int64_t before = i ? counts >> 8 * (i - 1) & 255 : 0;
            select_eight(bytes, PLACED + (bits[word] >> 8 * i & 255), kept + before * bytes, items + 8 * i * bytes);
        }
        kept += count * bytes;
    }
}

HC_BITMAP_EXPAND(neon)
