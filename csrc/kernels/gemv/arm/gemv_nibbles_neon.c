/* gemv_nibbles: a 32-bit word gets the `bits` bytes of 8 codes. Then its upper 4 codes move to the upper half, the upper 2
 * of each half to the upper byte, and the upper one of each byte to the upper 4 bits.
 */
#include "kernels/gemv/gemv_nibbles.h"

#include <arm_neon.h>

/* Moves the upper half of the codes of each field up; low: the mask of the others. */
static inline uint32x4_t spread(uint32x4_t words, uint32_t low, int up) {
    const uint32x4_t kept = vandq_u32(words, vdupq_n_u32(low));
    return vorrq_u32(kept, vshlq_u32(veorq_u32(words, kept), vdupq_n_s32(up)));
}

void hc_gemv_nibbles_neon(const uint8_t *stored, int64_t row_bytes, int bits, int64_t n, uint8_t *out) {
    uint8_t at[16];
    for (int i = 0; i < 16; i++) /* an index of 128 gives 0 */
        at[i] = (uint8_t)(i % 4 < bits ? i / 4 * bits + i % 4 : 128);
    const uint8x16_t bytes = vld1q_u8(at);
    const uint32_t four = (1u << 4 * bits) - 1, two = ((1u << 2 * bits) - 1) * 0x10001u;
    const uint32_t one = ((1u << bits) - 1) * 0x1010101u;
    int64_t i = 0;
    for (; i + 32 <= n && row_bytes >= 16; i += 32, stored += 4 * bits, row_bytes -= 4 * bits) {
        uint32x4_t words = vreinterpretq_u32_u8(vqtbl1q_u8(vld1q_u8(stored), bytes));
        words = spread(spread(spread(words, four, 16 - 4 * bits), two, 8 - 2 * bits), one, 4 - bits);
        vst1q_u8(out + i / 2, vreinterpretq_u8_u32(words));
    }
    spread_codes(stored, row_bytes, bits, n - i, out + i / 2);
}
