/* Shared by the ARM kernels of gemv: dots of bytes by sdot or without it, floats by a table of 16. */
#ifndef HC_GEMV_ARM_H
#define HC_GEMV_ARM_H

#include "base/lanes/neon.h"
#include "kernels/gemv/gemv_tail.h"

#include <arm_neon.h>
#include <string.h>

#define INLINE static inline __attribute__((always_inline))

/* Where gemv_rows has the sum of position k of 64. */
INLINE int64_t place_of(int bits, int64_t k) {
    return bits >= 16 ? k : bits == 8 ? k % 4 * 16 + k / 4 : k % 8 * 8 + k / 8;
}

static __attribute__((noinline, unused)) float fold_places(int bits, const float *sums) {
    float acc[64];
    for (int k = 0; k < 64; k++)
        acc[k] = sums[place_of(bits, k)];
    for (int half = 32; half > 0; half /= 2)
        for (int i = 0; i < half; i++)
            acc[i] = acc[i] + acc[i + half];
    return acc[0];
}

/* Entries for the 8 nibbles of each of 4 words, nibble j in c[j]. The first bytes of all entries are planes[0], and so
 * on: four byte lookups give four floats of each word, whose bytes are then combined. */
INLINE void entries(uint8x16x4_t planes, uint32x4_t words, float32x4_t c[8]) {
    const uint8x16_t bytes = vreinterpretq_u8_u32(words);
    const uint8x16_t index[2] = {vandq_u8(bytes, vdupq_n_u8(15)), vshrq_n_u8(bytes, 4)};
#pragma GCC unroll 2
    for (int i = 0; i < 2; i++) {
        const uint8x16x2_t low = vtrnq_u8(vqtbl1q_u8(planes.val[0], index[i]), vqtbl1q_u8(planes.val[1], index[i]));
        const uint8x16x2_t high = vtrnq_u8(vqtbl1q_u8(planes.val[2], index[i]), vqtbl1q_u8(planes.val[3], index[i]));
#pragma GCC unroll 2
        for (int h = 0; h < 2; h++) { /* bytes h and h + 2 of each word */
            const uint16x8x2_t whole = vtrnq_u16(vreinterpretq_u16_u8(low.val[h]), vreinterpretq_u16_u8(high.val[h]));
            c[2 * h + i] = vreinterpretq_f32_u16(whole.val[0]);
            c[2 * h + 4 + i] = vreinterpretq_f32_u16(whole.val[1]);
        }
    }
}

/* Floats of 8 bits; gemv_tail.h describes the conversion. Callers handle infinity and NaN. */
typedef struct {
    int32x4_t shift;
    uint32x4_t kept;
    uint8x16_t special; /* special_bits of each byte */
    float factor;
} hc_float8_f32x4;

INLINE hc_float8_f32x4 make_float8(const hc_gemv_floats_args *args) {
    const hc_float8 form = hc_float8_of(args->exponent_bits);
    return (hc_float8_f32x4){vdupq_n_s32(-form.shift), vdupq_n_u32(form.kept), vdupq_n_u8((uint8_t)args->special_bits),
                             form.factor};
}

/* Byte j of each word. */
INLINE float32x4_t float8_f32x4(const hc_float8_f32x4 *d, uint32x4_t words, int j) {
    const int32x4_t top = vreinterpretq_s32_u32(vshlq_u32(words, vdupq_n_s32(24 - 8 * j)));
    const uint32x4_t field = vandq_u32(vreinterpretq_u32_s32(vshlq_s32(top, d->shift)), d->kept);
    return vmulq_n_f32(vreinterpretq_f32_u32(field), d->factor);
}

/* Mask of the bytes that are infinite or NaN. */
INLINE uint32x4_t special_bytes(const hc_float8_f32x4 *d, uint32x4_t words) {
    const uint8x16_t bytes = vreinterpretq_u8_u32(words);
    return vreinterpretq_u32_u8(vceqq_u8(vandq_u8(bytes, d->special), d->special));
}

#endif
