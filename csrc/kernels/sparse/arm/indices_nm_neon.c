/* Positions to indices, eight at a time: each position is within two bytes, which are moved to 16 bits and shifted. */
#include "kernels/kernel.h"

#include <arm_neon.h>

int64_t hc_indices_nm_neon(int m, const uint8_t *metadata, int64_t bytes, const uint16_t *base, int64_t count,
                           uint16_t *at) {
    const int bits = hc_position_bits(m);
    uint8_t place[16];
    int16_t shift[8];
    for (int i = 0; i < 8; i++) {
        place[2 * i] = (uint8_t)(i * bits / 8);
        place[2 * i + 1] = (uint8_t)(place[2 * i] + 1); /* the eighth byte does not exist, and is not needed */
        shift[i] = (int16_t)(-(i * bits % 8));
    }
    const uint8x16_t places = vld1q_u8(place);
    const int16x8_t down = vld1q_s16(shift);
    const uint16x8_t mask = vdupq_n_u16((uint16_t)((1u << bits) - 1)), most = vdupq_n_u16((uint16_t)(m - 1));
    int64_t t = 0;
    for (int64_t byte = 0; t + 8 <= count && byte + 8 <= bytes; t += 8, byte += bits) {
        const uint8x8_t some = vld1_u8(metadata + byte);
        const uint8x16_t pairs = vqtbl1q_u8(vcombine_u8(some, vdup_n_u8(0)), places);
        const uint16x8_t position = vandq_u16(vshlq_u16(vreinterpretq_u16_u8(pairs), down), mask);
        vst1q_u16(at + t, vaddq_u16(vld1q_u16(base + t), vminq_u16(position, most)));
    }
    return t;
}
