/* gemv_unpack: 8 codes are in at most 9 bytes. Each is within two of them, which are moved to 16 bits and shifted. */
#include "kernels/kernel.h"

#include <arm_neon.h>
#include <string.h>

void hc_gemv_unpack_neon(const uint8_t *stored, int64_t row_bytes, int bits, int64_t n, uint8_t *out) {
    const uint8_t *const end = stored + row_bytes;
    uint8_t at[16];
    int16_t shifts[8];
    for (int i = 0; i < 8; i++) {
        at[2 * i] = (uint8_t)(i * bits / 8);
        at[2 * i + 1] = (uint8_t)(at[2 * i] + 1);
        shifts[i] = (int16_t)(-(i * bits % 8));
    }
    const uint8x16_t places = vld1q_u8(at);
    const int16x8_t down = vld1q_s16(shifts);
    const uint8x8_t mask = vdup_n_u8((uint8_t)((1u << bits) - 1));
    for (int64_t i = 0; i < n; i += 8, stored += bits) {
        uint8x16_t bytes;
        if (end - stored >= 16) {
            bytes = vld1q_u8(stored);
        } else {
            uint8_t last[16] = {0};
            memcpy(last, stored, (size_t)(end - stored));
            bytes = vld1q_u8(last);
        }
        const uint16x8_t codes = vshlq_u16(vreinterpretq_u16_u8(vqtbl1q_u8(bytes, places)), down);
        vst1_u8(out + i, vand_u8(vmovn_u16(codes), mask));
    }
}
