/* Primitives of NEON: levels by planes of bytes, and codes of 9 to 15 bits as 16 bits each. */
#ifndef HC_SIMD_ARM_PLANES_H
#define HC_SIMD_ARM_PLANES_H

#include "formats/planes.h"

#include <arm_neon.h>

/* Entries of up to 64 bytes by an instruction; an index beyond them leaves what is there. */
static inline __attribute__((always_inline)) uint8x16_t plane_bytes(const uint8_t *plane, int blocks,
                                                                    uint8x16_t index) {
    if (blocks == 1)
        return vqtbl1q_u8(vld1q_u8(plane), index);
    if (blocks == 2)
        return vqtbl2q_u8((uint8x16x2_t){{vld1q_u8(plane), vld1q_u8(plane + 16)}}, index);
    const uint8x16_t low = vqtbl4q_u8(vld1q_u8_x4(plane), index);
    return blocks == 4 ? low : vqtbx4q_u8(low, vld1q_u8_x4(plane + 64), vsubq_u8(index, vdupq_n_u8(64)));
}

enum { PLANE_CODES = 16 };

/* The levels of PLANE_CODES codes; false if one is an exception. */
static inline __attribute__((always_inline)) bool plane_levels(const hc_planes *planes, int blocks, int n_planes,
                                                               const uint8_t *codes, float *to) {
    const uint8x16_t code = vld1q_u8(codes), up = vdupq_n_u8((uint8_t)(8 - planes->bits));
    if (planes->n_exceptions > 0) {
        const uint8x16_t is_one = vorrq_u8(vceqq_u8(code, vdupq_n_u8(planes->exceptions[0])),
                                           vceqq_u8(code, vdupq_n_u8(planes->exceptions[1])));
        if (vmaxvq_u8(is_one))
            return false;
    }
    const uint8x16_t top = vshlq_u8(code, vreinterpretq_s8_u8(up));
    const uint8x16_t is_below = vcltzq_s8(vreinterpretq_s8_u8(top));
    const bool is_complement = planes->kind == HC_PLANES_COMPLEMENT, is_whole = planes->kind == HC_PLANES_WHOLE;
    const uint8x16_t flips = vandq_u8(is_below, vdupq_n_u8(is_complement ? 255 : 0));
    const uint8x16_t turned = vsubq_u8(veorq_u8(code, flips), flips);
    const uint8x16_t index = vandq_u8(turned, vdupq_n_u8((uint8_t)(16 * blocks - 1)));
    const uint8x16_t sign = vandq_u8(is_below, vdupq_n_u8(is_whole ? 0 : 128)), none = vdupq_n_u8(0);
    const uint8x16_t b3 = vorrq_u8(plane_bytes(planes->plane[3], blocks, index), sign);
    const uint8x16_t b2 = plane_bytes(planes->plane[2], blocks, index);
    const uint8x16_t b1 = n_planes == 4 ? plane_bytes(planes->plane[1], blocks, index) : none;
    const uint8x16_t b0 = n_planes == 4 ? plane_bytes(planes->plane[0], blocks, index) : none;
    const uint8x16x4_t all = {{b0, b1, b2, b3}};
    vst4q_u8((uint8_t *)to, all);
    return true;
}

/* Codes of 9 to 15 bits to 16 bits each, 8 at a time; returns the number of unpacked codes. Reads 16 bytes of 8 codes. */
static inline int64_t simd_unpack16(const uint8_t *from, const uint8_t *end, int64_t n, int bits, uint16_t *out) {
    uint8_t at[32];
    int32_t shifts[8];
    for (int i = 0; i < 32; i++) /* an index of 255 gives 0 */
        at[i] = (uint8_t)(i % 4 < 3 ? i / 4 * bits / 8 + i % 4 : 255);
    for (int i = 0; i < 8; i++)
        shifts[i] = -(i * bits % 8);
    const uint16x8_t mask = vdupq_n_u16((uint16_t)((1u << bits) - 1));
    int64_t i = 0;
    for (; i + 8 <= n && end - from >= 16; i += 8, from += bits) {
        const uint8x16_t bytes = vld1q_u8(from);
        const uint32x4_t low = vreinterpretq_u32_u8(vqtbl1q_u8(bytes, vld1q_u8(at)));
        const uint32x4_t high = vreinterpretq_u32_u8(vqtbl1q_u8(bytes, vld1q_u8(at + 16)));
        const uint16x4_t first = vmovn_u32(vshlq_u32(low, vld1q_s32(shifts)));
        const uint16x8_t both = vmovn_high_u32(first, vshlq_u32(high, vld1q_s32(shifts + 4)));
        vst1q_u16(out + i, vandq_u16(both, mask));
    }
    return i;
}

#endif
