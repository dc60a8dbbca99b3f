/* What is kept, side by side, 4 columns at a time. */
#include "kernels/kernel.h"

#include <arm_neon.h>

#define UNIT(i) 4 * (i), 4 * (i) + 1, 4 * (i) + 2, 4 * (i) + 3
static const uint8_t KEPT[16][16] = {
    {0},
    {UNIT(0)},
    {UNIT(1)},
    {UNIT(0), UNIT(1)},
    {UNIT(2)},
    {UNIT(0), UNIT(2)},
    {UNIT(1), UNIT(2)},
    {UNIT(0), UNIT(1), UNIT(2)},
    {UNIT(3)},
    {UNIT(0), UNIT(3)},
    {UNIT(1), UNIT(3)},
    {UNIT(0), UNIT(1), UNIT(3)},
    {UNIT(2), UNIT(3)},
    {UNIT(0), UNIT(2), UNIT(3)},
    {UNIT(1), UNIT(2), UNIT(3)},
    {UNIT(0), UNIT(1), UNIT(2), UNIT(3)},
};

int64_t hc_compress_x32_neon(int64_t columns, const uint64_t *masks, const float *x, float *out) {
    float *to = out;
    int64_t k = 0;
    for (; k + 4 <= columns; k += 4) {
        const unsigned bits = (unsigned)(masks[k / 64] >> (k % 64) & 15);
        const uint8x16_t four = vreinterpretq_u8_f32(vld1q_f32(x + k));
        vst1q_f32(to, vreinterpretq_f32_u8(vqtbl1q_u8(four, vld1q_u8(KEPT[bits]))));
        to += __builtin_popcount(bits);
    }
    for (; k < columns; k++)
        if (masks[k / 64] >> (k % 64) & 1)
            *to++ = x[k];
    return to - out;
}
