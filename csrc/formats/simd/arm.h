/* Primitives of NEON for encoding and decoding: bits in words, float16, small numbers times a factor. */
#ifndef HC_SIMD_ARM_H
#define HC_SIMD_ARM_H

#include "base/base.h"

#include <arm_neon.h>

/* Gathers the low `bits` bits of each byte of a mask; and the inverse. */
static inline uint64_t simd_extract_bits(uint64_t word, uint64_t mask) {
    const int bits = __builtin_popcount((unsigned)mask & 0xff);
    word &= mask;
    word = (word & 0x00ff00ff00ff00ff) | (word & 0xff00ff00ff00ff00) >> (8 - bits);
    word = (word & 0x0000ffff0000ffff) | (word & 0xffff0000ffff0000) >> (16 - 2 * bits);
    return (word & 0x00000000ffffffff) | (word & 0xffffffff00000000) >> (32 - 4 * bits);
}

static inline uint64_t simd_deposit_bits(uint64_t word, uint64_t mask) {
    const int bits = __builtin_popcount((unsigned)mask & 0xff);
    const uint64_t four = ((uint64_t)1 << 4 * bits) - 1, two = (((uint64_t)1 << 2 * bits) - 1) * 0x0000000100000001;
    word = (word & four) | (word & four << 4 * bits) << (32 - 4 * bits);
    word = (word & two) | (word & two << 2 * bits) << (16 - 2 * bits);
    return ((word & 0x00ff00ff00ff00ff & mask) | (word << (8 - bits) & 0xff00ff00ff00ff00)) & mask;
}

/* --- float16 --- */

static inline float32x4_t widened_low(uint16x8_t halves) {
    return vcvt_f32_f16(vreinterpret_f16_u16(vget_low_u16(halves)));
}
static inline float32x4_t widened_high(uint16x8_t halves) {
    return vcvt_f32_f16(vreinterpret_f16_u16(vget_high_u16(halves)));
}
static inline uint16x8_t narrowed(float32x4_t low, float32x4_t high) {
    return vcombine_u16(vreinterpret_u16_f16(vcvt_f16_f32(low)), vreinterpret_u16_f16(vcvt_f16_f32(high)));
}

/* 8 float32 of 8 float16. */
static inline void simd_from_halves(const uint8_t *halves, float *out) {
    const uint16x8_t half = vreinterpretq_u16_u8(vld1q_u8(halves));
    vst1q_f32(out, widened_low(half));
    vst1q_f32(out + 4, widened_high(half));
}

/* Stores 8 values as float16, none above the limit, and replaces the values by the stored ones. */
static inline void simd_store_halves(float *values, float limit, uint16_t *halves) {
    const float32x4_t most = vdupq_n_f32(limit);
    const uint16x8_t half = narrowed(vminq_f32(vld1q_f32(values), most), vminq_f32(vld1q_f32(values + 4), most));
    vst1q_u16(halves, half);
    vst1q_f32(values, widened_low(half));
    vst1q_f32(values + 4, widened_high(half));
}

/* 8 codes of float16. Magnitudes are clamped to the limit; NaN keeps its sign and loses its payload. */
static inline void simd_half_codes(const float *x, float limit, uint8_t *out) {
    const float32x4_t most = vdupq_n_f32(limit), low = vld1q_f32(x), high = vld1q_f32(x + 4);
    const uint16x8_t code = narrowed(vminq_f32(most, vabsq_f32(low)), vminq_f32(most, vabsq_f32(high)));
    const uint16x8_t upper = vuzp2q_u16(vreinterpretq_u16_f32(low), vreinterpretq_u16_f32(high));
    const uint16x8_t is_nan = vcgtq_u16(code, vdupq_n_u16(0x7c00));
    const uint16x8_t magnitude = vbslq_u16(is_nan, vdupq_n_u16(0x7e00), code);
    vst1q_u8(out, vreinterpretq_u8_u16(vbslq_u16(vdupq_n_u16(0x8000), upper, magnitude)));
}

/* Codes of n values, n a multiple of 8. False: one may be wrong. */
static inline bool simd_half_codes_of_numbers(const float *x, int64_t n, float limit, uint8_t *out) {
    for (int64_t i = 0; i < n; i += 8)
        simd_half_codes(x + i, limit, out + 2 * i);
    return true;
}

/* --- small numbers times a factor --- */

/* 8 bytes of e4m3 without a sign, times a factor. Read as float16, such a byte is too small by 2^8. */
static inline void simd_scaled_e4m3(const uint8_t *bytes, float factor, float *out) {
    const uint16x8_t half = vshlq_n_u16(vmovl_u8(vld1_u8(bytes)), 7);
    vst1q_f32(out, vmulq_n_f32(vmulq_n_f32(widened_low(half), 256), factor));
    vst1q_f32(out + 4, vmulq_n_f32(vmulq_n_f32(widened_high(half), 256), factor));
}

static inline void scaled_words(int16x8_t words, float factor, float *out) {
    vst1q_f32(out, vmulq_n_f32(vcvtq_f32_s32(vmovl_s16(vget_low_s16(words))), factor));
    vst1q_f32(out + 4, vmulq_n_f32(vcvtq_f32_s32(vmovl_high_s16(words)), factor));
}

/* 8 signed bytes times a factor. */
static inline void simd_scaled_bytes(const uint8_t *bytes, float factor, float *out) {
    scaled_words(vmovl_s8(vreinterpret_s8_u8(vld1_u8(bytes))), factor, out);
}

/* 8 adjacent numbers of up to 8 bits in a word, times a factor. */
static inline void simd_scaled_numbers(uint64_t word, int bits, bool is_signed, float factor, float *out) {
    const uint64_t mask = 0x0101010101010101u * ((1u << bits) - 1);
    const int16x8_t up = vdupq_n_s16((int16_t)(is_signed ? 16 - bits : 0));
    const int16x8_t number = vreinterpretq_s16_u16(vmovl_u8(vcreate_u8(simd_deposit_bits(word, mask))));
    scaled_words(vshlq_s16(vshlq_s16(number, up), vnegq_s16(up)), factor, out);
}

#endif
