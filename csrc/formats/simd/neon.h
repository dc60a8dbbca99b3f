/* The primitives of formats/simd for NEON. A unit is four registers.
 *
 * Small floats are rounded as in avx2.h: what is added to a magnitude leaves its code in the low bits of the sum.
 * vminq and vmaxq keep a NaN, as the second operand of x86's min and max does.
 */
#ifndef HC_SIMD_NEON_H
#define HC_SIMD_NEON_H

#include "base/base.h"
#include "formats/simd/codes.h"

#include <arm_neon.h>
#include <float.h>
#include <string.h>

#define HC_SIMD_F64 2 /* float64 in a register */

/* The low `bits` bits of each byte of a mask, close together; and the way back. */
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

static inline float simd_from_half(uint16_t half) { return vgetq_lane_f32(widened_low(vdupq_n_u16(half)), 0); }
static inline uint16_t simd_to_half(float value) {
    const float32x4_t all = vdupq_n_f32(value);
    return vgetq_lane_u16(narrowed(all, all), 0);
}

/* 8 float32 of 8 float16. */
static inline void simd_from_halves(const uint8_t *halves, float *out) {
    const uint16x8_t half = vreinterpretq_u16_u8(vld1q_u8(halves));
    vst1q_f32(out, widened_low(half));
    vst1q_f32(out + 4, widened_high(half));
}

/* 8 values as float16, none above the limit, and what these stand for in place of the values. */
static inline void simd_store_halves(float *values, float limit, uint16_t *halves) {
    const float32x4_t most = vdupq_n_f32(limit);
    const uint16x8_t half = narrowed(vminq_f32(vld1q_f32(values), most), vminq_f32(vld1q_f32(values + 4), most));
    vst1q_u16(halves, half);
    vst1q_f32(values, widened_low(half));
    vst1q_f32(values + 4, widened_high(half));
}

/* 8 codes of float16: no magnitude above the limit, one NaN for all. */
static inline void simd_half_codes(const float *x, float limit, uint8_t *out) {
    const float32x4_t most = vdupq_n_f32(limit), low = vld1q_f32(x), high = vld1q_f32(x + 4);
    const uint16x8_t code = narrowed(vminq_f32(most, vabsq_f32(low)), vminq_f32(most, vabsq_f32(high)));
    const uint16x8_t upper = vuzp2q_u16(vreinterpretq_u16_f32(low), vreinterpretq_u16_f32(high));
    const uint16x8_t is_nan = vcgtq_u16(code, vdupq_n_u16(0x7c00));
    const uint16x8_t magnitude = vbslq_u16(is_nan, vdupq_n_u16(0x7e00), code);
    vst1q_u8(out, vreinterpretq_u8_u16(vbslq_u16(vdupq_n_u16(0x8000), upper, magnitude)));
}

/* --- small numbers times a factor --- */

/* 8 bytes of e4m3 without a sign, times a factor: as float16, such a byte is smaller by 2^8. */
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

/* 8 numbers of up to 8 bits, close together in a word, times a factor. */
static inline void simd_scaled_numbers(uint64_t word, int bits, bool is_signed, float factor, float *out) {
    const uint64_t mask = 0x0101010101010101u * ((1u << bits) - 1);
    const int16x8_t up = vdupq_n_s16((int16_t)(is_signed ? 16 - bits : 0));
    const int16x8_t number = vreinterpretq_s16_u16(vmovl_u8(vcreate_u8(simd_deposit_bits(word, mask))));
    scaled_words(vshlq_s16(vshlq_s16(number, up), vnegq_s16(up)), factor, out);
}

/* --- encoding --- */

/* The bits of |x|, max(x, 0) or max(-x, 0): magnitudes compare as integers. */
static inline int32x4_t magnitude_i32x4(const float *from, int which) {
    int32x4_t x = vreinterpretq_s32_f32(vld1q_f32(from));
    if (which == HC_ABSOLUTE)
        return vandq_s32(x, vdupq_n_s32(0x7fffffff));
    if (which == HC_NEGATIVE)
        x = veorq_s32(x, vdupq_n_s32(INT32_MIN));
    return vmaxq_s32(x, vdupq_n_s32(0));
}

static inline int32x4_t unit_maxima(const float *x, int which) {
    return vmaxq_s32(vmaxq_s32(magnitude_i32x4(x, which), magnitude_i32x4(x + 4, which)),
                     vmaxq_s32(magnitude_i32x4(x + 8, which), magnitude_i32x4(x + 12, which)));
}

/* Largest magnitude of each of n_groups groups of units * 16 values; then zeros to a multiple of 16. */
static inline __attribute__((always_inline)) void simd_maxima(const float *x, int64_t n_groups, int64_t units,
                                                              int which, float *maxima) {
    for (int64_t first = 0; first < hc_round_up(n_groups, 16); first += 4) {
        int32x4_t group_i32x4[4];
        const float *from = x + first * units * 16;
        const int64_t present = n_groups - first;
#pragma GCC unroll 4
        for (int i = 0; i < 4; i++) {
            group_i32x4[i] = vdupq_n_s32(0);
            for (int64_t unit = 0; unit < units && i < present; unit++)
                group_i32x4[i] = vmaxq_s32(group_i32x4[i], unit_maxima(from + (i * units + unit) * 16, which));
        }
        const int32x4_t largest =
            vpmaxq_s32(vpmaxq_s32(group_i32x4[0], group_i32x4[1]), vpmaxq_s32(group_i32x4[2], group_i32x4[3]));
        vst1q_f32(maxima + first, vreinterpretq_f32_s32(largest));
    }
}

/* Largest magnitude of n values. */
static inline float simd_maximum(const float *x, int64_t n, int which) {
    int32x4_t largest = vdupq_n_s32(0);
    int64_t i = 0;
    for (; i + 16 <= n; i += 16)
        largest = vmaxq_s32(largest, unit_maxima(x + i, which));
    float last[16] = {0};
    memcpy(last, x + i, (size_t)(n - i) * sizeof *last);
    largest = vmaxq_s32(largest, unit_maxima(last, which));
    return hc_f32_from_bits((uint32_t)vmaxvq_s32(largest));
}

/* The low bytes of 16 numbers. */
static inline uint8x16_t low_bytes(const uint32x4_t numbers[4]) {
    const uint16x8_t low = vuzp1q_u16(vreinterpretq_u16_u32(numbers[0]), vreinterpretq_u16_u32(numbers[1]));
    const uint16x8_t high = vuzp1q_u16(vreinterpretq_u16_u32(numbers[2]), vreinterpretq_u16_u32(numbers[3]));
    return vuzp1q_u8(vreinterpretq_u8_u16(low), vreinterpretq_u8_u16(high));
}

static inline __attribute__((always_inline)) uint32x4_t quarter_floats(const float *x, float reciprocal, float limit,
                                                                       hc_code_mode mode, uint32x4_t *apart) {
    const hc_small_float type = small_float(mode);
    const int m = type.fraction_bits;
    const float32x4_t quotient = vmulq_n_f32(vld1q_f32(x), reciprocal);
    const float32x4_t cut = vminq_f32(vabsq_f32(quotient), vdupq_n_f32(limit));
    const uint32x4_t field = vandq_u32(vmaxq_u32(vreinterpretq_u32_f32(cut), vdupq_n_u32((uint32_t)type.least << 23)),
                                       vdupq_n_u32(0x7f800000));
    const uint32x4_t code = vshlq_u32(field, vdupq_n_s32(m - 23));
    const uint32_t beyond = (uint32_t)(((23 - m) << 23) - (type.least << m));
    const float32x4_t add = vreinterpretq_f32_u32(vaddq_u32(vaddq_u32(field, code), vdupq_n_u32(beyond)));
    uint32x4_t sum;
    if (is_exact(mode)) {
        sum = vreinterpretq_u32_f32(vaddq_f32(cut, add));
    } else { /* the same code from a little less and a little more: no midpoint between */
        sum = vreinterpretq_u32_f32(vfmaq_n_f32(add, cut, 1 - HC_QUOTIENT_ERROR));
        const float32x4_t more = vfmaq_n_f32(add, cut, 1 + HC_QUOTIENT_ERROR);
        *apart = vorrq_u32(*apart, veorq_u32(sum, vreinterpretq_u32_f32(more)));
    }
    const uint32x4_t sign = vshlq_u32(vreinterpretq_u32_f32(quotient), vdupq_n_s32(type.bits - 32));
    return vbslq_u32(vdupq_n_u32((1u << (type.bits - 1)) - 1), sum, sign);
}

/* Four units as simd_codes: false where a quotient is near a midpoint. */
static inline __attribute__((always_inline)) bool simd_floats(const float *x, const uint8_t *group_of,
                                                              const float *reciprocal, float limit, hc_code_mode mode,
                                                              uint8_t *codes) {
    uint32x4_t apart = vdupq_n_u32(0);
    for (int i = 0; i < 4; i++) {
        const float by = reciprocal[group_of[i]];
        uint32x4_t code[4];
#pragma GCC unroll 4
        for (int j = 0; j < 4; j++)
            code[j] = quarter_floats(x + i * 16 + j * 4, by, limit, mode, &apart);
        vst1q_u8(codes + i * 16, low_bytes(code));
    }
    return is_exact(mode) || vmaxvq_u32(apart) == 0;
}

/* Codes of levels, four units as simd_codes. */
static inline __attribute__((always_inline)) bool
simd_levels(const float *x, const uint8_t *group_of, const float *reciprocal, const float *levels, uint8_t *codes) {
    const float32x4_t one = vdupq_n_f32(1);
    float32x4_t nearest = one;
    for (int i = 0; i < 4; i++) {
        const float by = reciprocal[group_of[i]];
        uint32x4_t code[4];
#pragma GCC unroll 4
        for (int j = 0; j < 4; j++) {
            float32x4_t quotient = vmulq_n_f32(vld1q_f32(x + i * 16 + j * 4), by);
            quotient = vmaxq_f32(vminq_f32(quotient, one), vnegq_f32(one));
            /* adding 1.5 * 2^23 rounds to an integer, in the low bits of the sum */
            const float32x4_t step = vfmaq_n_f32(vdupq_n_f32(0x1.8p23f), quotient, HC_LEVEL_STEPS);
            uint32_t index[4];
            vst1q_u32(index, vandq_u32(vreinterpretq_u32_f32(step), vdupq_n_u32(31)));
            float32x4_t midpoint = vdupq_n_f32(levels[index[0]]);
            midpoint = vld1q_lane_f32(levels + index[1], midpoint, 1);
            midpoint = vld1q_lane_f32(levels + index[2], midpoint, 2);
            midpoint = vld1q_lane_f32(levels + index[3], midpoint, 3);
            const float32x4_t below = vsubq_f32(midpoint, quotient);
            nearest = vminq_f32(nearest, vabsq_f32(below));
            code[j] = vaddq_u32(vandq_u32(vreinterpretq_u32_f32(midpoint), vdupq_n_u32(15)),
                                vshrq_n_u32(vreinterpretq_u32_f32(below), 31));
        }
        vst1q_u8(codes + i * 16, low_bytes(code));
    }
    return vminvq_f32(nearest) > HC_LEVEL_ERROR;
}

/* Codes of 4 values by the reciprocal, as int16; `worst` gathers the distances to the integers. */
static inline int16x4_t quarter_codes(const float *x, float reciprocal, hc_code_mode mode, float32x4_t *worst) {
    float32x4_t quotient = vmulq_n_f32(vld1q_f32(x), reciprocal);
    if (mode != HC_CODES_PLAIN)
        quotient = vminq_f32(quotient, vdupq_n_f32(1024.0f));
    const int32x4_t code = vcvtnq_s32_f32(quotient);
    *worst = vmaxq_f32(*worst, vabdq_f32(quotient, vcvtq_f32_s32(code)));
    return vqmovn_s32(code);
}

/* Codes of 8 values as int16. */
static inline int16x8_t half_codes(const float *x, float reciprocal, int32_t zero, const hc_code_range *range,
                                   hc_code_mode mode, float32x4_t *worst) {
    const int16x4_t low = quarter_codes(x, reciprocal, mode, worst);
    int16x8_t code = vcombine_s16(low, quarter_codes(x + 4, reciprocal, mode, worst));
    if (mode == HC_CODES_SHIFTED)
        code = vaddq_s16(code, vdupq_n_s16((int16_t)zero));
    if (mode != HC_CODES_PLAIN)
        code = vminq_s16(vmaxq_s16(code, vdupq_n_s16((int16_t)range->low)), vdupq_n_s16((int16_t)range->high));
    return code;
}

/* Four units; false where a quotient is near a midpoint, so that the codes must be made again by division. */
static inline __attribute__((always_inline)) bool simd_codes(const float *x, const uint8_t *group_of,
                                                             const float *reciprocal, const int32_t *zero,
                                                             const hc_code_range *range, float near, hc_code_mode mode,
                                                             uint8_t *codes) {
    if (is_small_float(mode))
        return simd_floats(x, group_of, reciprocal, range->limit, mode, codes);
    if (mode == HC_CODES_LEVELS)
        return simd_levels(x, group_of, reciprocal, range->levels, codes);
    const bool is_signed = mode == HC_CODES_PLAIN || mode == HC_CODES_SIGNED;
    float32x4_t worst = vdupq_n_f32(0);
#pragma GCC unroll 4
    for (int i = 0; i < 4; i++) {
        const int group = group_of[i];
        const int32_t shift = mode == HC_CODES_SHIFTED ? zero[group] : 0;
        const int16x8_t low = half_codes(x + i * 16, reciprocal[group], shift, range, mode, &worst);
        const int16x8_t high = half_codes(x + i * 16 + 8, reciprocal[group], shift, range, mode, &worst);
        if (is_signed)
            vst1q_s8((int8_t *)codes + i * 16, vqmovn_high_s16(vqmovn_s16(low), high));
        else
            vst1q_u8(codes + i * 16, vqmovun_high_s16(vqmovun_s16(low), high));
    }
    return vmaxvq_f32(worst) <= near;
}

/* Codes of 4 values that are exact: the remainder x - k * s is, and tells on which side of the midpoint x lies. */
static inline int32x4_t corrected_i32x4(float32x4_t value, float scale, float reciprocal) {
    const float32x4_t bound = vdupq_n_f32(1024.0f), scales = vdupq_n_f32(scale);
    float32x4_t quotient = vminq_f32(vmulq_n_f32(value, reciprocal), bound);
    quotient = vmaxq_f32(quotient, vnegq_f32(bound));
    const int32x4_t code = vcvtnq_s32_f32(quotient);
    const float32x4_t remainder = vfmsq_f32(value, vcvtq_f32_s32(code), scales);
    const float32x4_t twice = vabsq_f32(vaddq_f32(remainder, remainder));
    const uint32x4_t odd = vtstq_s32(code, vdupq_n_s32(1));
    const uint32x4_t tie = vandq_u32(vceqq_f32(twice, scales), odd);
    const uint32x4_t off = vandq_u32(vorrq_u32(vcgtq_f32(twice, scales), tie), vcgtzq_f32(scales));
    /* all ones is minus one: added it goes down, subtracted up */
    const int32x4_t down = vreinterpretq_s32_u32(vandq_u32(off, vclezq_f32(remainder)));
    const int32x4_t up = vreinterpretq_s32_u32(vandq_u32(off, vcgtzq_f32(remainder)));
    return vsubq_s32(vaddq_s32(code, down), up);
}

static inline void simd_corrected(const float *x, float scale, float reciprocal, int32_t zero,
                                  const hc_code_range *range, uint8_t *codes) {
    const int16x8_t shift = vdupq_n_s16((int16_t)zero);
    const int16x8_t low = vdupq_n_s16((int16_t)range->low), high = vdupq_n_s16((int16_t)range->high);
    int16x8_t code[2];
    for (int i = 0; i < 2; i++) {
        const int32x4_t first = corrected_i32x4(vld1q_f32(x + i * 8), scale, reciprocal);
        const int32x4_t second = corrected_i32x4(vld1q_f32(x + i * 8 + 4), scale, reciprocal);
        code[i] = vaddq_s16(vqmovn_high_s32(vqmovn_s32(first), second), shift);
        code[i] = vminq_s16(vmaxq_s16(code[i], low), high);
    }
    vst1q_s8((int8_t *)codes, vmovn_high_s16(vmovn_s16(code[0]), code[1]));
}

/* 32 codes in bytes -> 16 bytes. */
static inline uint8x16_t pack4_bytes(const uint8_t *codes) {
    const uint8x16x2_t pair = vld2q_u8(codes);
    return vsliq_n_u8(pair.val[0], pair.val[1], 4);
}

/* n codes in bytes -> 4 bits each. */
static inline void simd_pack4(const uint8_t *codes, int64_t n, uint8_t *out) {
    int64_t i = 0;
    for (; i + 32 <= n; i += 32)
        vst1q_u8(out + i / 2, pack4_bytes(codes + i));
    if (i < n) {
        uint8_t last[32] = {0}, packed[16];
        memcpy(last, codes + i, (size_t)(n - i));
        vst1q_u8(packed, pack4_bytes(last));
        memcpy(out + i / 2, packed, (size_t)(n - i + 1) / 2);
    }
}

/* --- decoding --- */

/* 32 codes of 4 bits as bytes without a sign. */
static inline uint8x16x2_t nibbles(const uint8_t *from) {
    const uint8x16_t pair = vld1q_u8(from);
    return vzipq_u8(vandq_u8(pair, vdupq_n_u8(15)), vshrq_n_u8(pair, 4));
}

/* The first multiple of 32 of n codes of 4 bits, as bytes; returns how many. */
static inline int64_t simd_unpack4(const uint8_t *from, int64_t n, bool is_signed, uint8_t *out) {
    const uint8x16_t sign = vdupq_n_u8(is_signed ? 8 : 0); /* (code ^ 8) - 8 extends the sign */
    int64_t i = 0;
    for (; i + 32 <= n; i += 32) {
        const uint8x16x2_t code = nibbles(from + i / 2);
        vst1q_u8(out + i, vsubq_u8(veorq_u8(code.val[0], sign), sign));
        vst1q_u8(out + i + 16, vsubq_u8(veorq_u8(code.val[1], sign), sign));
    }
    return i;
}

/* A multiple of 16 of n codes of up to 7 bits, as bytes, the last of a row not; returns how many. Each code is within
 * two bytes, which go into 16 bits and are shifted. */
static inline int64_t simd_unpack(const uint8_t *from, const uint8_t *end, int64_t n, int bits, bool is_signed,
                                  uint8_t *out) {
    uint8_t at[16];
    int16_t shifts[8];
    for (int i = 0; i < 8; i++) {
        at[2 * i] = (uint8_t)(i * bits / 8);
        at[2 * i + 1] = (uint8_t)(at[2 * i] + 1);
        shifts[i] = (int16_t)(-(i * bits % 8));
    }
    const uint8x16_t first = vld1q_u8(at), second = vaddq_u8(first, vdupq_n_u8((uint8_t)bits));
    const int16x8_t down = vld1q_s16(shifts);
    const uint8x16_t mask = vdupq_n_u8((uint8_t)((1 << bits) - 1));
    const uint8x16_t sign = vdupq_n_u8((uint8_t)(is_signed ? 1 << (bits - 1) : 0));
    int64_t i = 0;
    for (; i + 16 <= n && end - from >= 16; i += 16, from += 2 * bits) {
        const uint8x16_t bytes = vld1q_u8(from);
        const uint16x8_t low = vshlq_u16(vreinterpretq_u16_u8(vqtbl1q_u8(bytes, first)), down);
        const uint16x8_t high = vshlq_u16(vreinterpretq_u16_u8(vqtbl1q_u8(bytes, second)), down);
        const uint8x16_t code = vandq_u8(vuzp1q_u8(vreinterpretq_u8_u16(low), vreinterpretq_u8_u16(high)), mask);
        vst1q_u8(out + i, vsubq_u8(veorq_u8(code, sign), sign));
    }
    return i;
}

/* The first multiple of 16 of n codes below 16, by a table; returns how many. */
static inline int64_t simd_lookup16(const uint8_t *codes, int64_t n, const int8_t table[16], int8_t *out) {
    const int8x16_t values = vld1q_s8(table);
    int64_t i = 0;
    for (; i + 16 <= n; i += 16)
        vst1q_s8(out + i, vqtbl1q_s8(values, vld1q_u8(codes + i)));
    return i;
}

/* The first multiple of 64 of n signed codes of 4 bits, times their groups' scales of 4 bits, of which the first is the first
 * of a byte; a group holds 16, 32 or 64 codes. Each scale has a table of its products. */
static inline int64_t simd_fold4(const uint8_t *codes, const uint8_t *scales, int64_t group, int64_t n, int8_t *out) {
    const int log2_group = __builtin_ctzll((uint64_t)group);
    int64_t i = 0;
    for (; i + 32 <= n / 64 * 64; i += 32) {
        const uint64_t a = (uint64_t)i >> log2_group, b = (uint64_t)(i + 16) >> log2_group;
        const int first = scales[a / 2] >> (a % 2 * 4) & 15, second = scales[b / 2] >> (b % 2 * 4) & 15;
        const uint8x16x2_t code = nibbles(codes + i / 2);
        vst1q_s8(out + i, vqtbl1q_s8(vld1q_s8(hc_times4[first]), code.val[0]));
        vst1q_s8(out + i + 16, vqtbl1q_s8(vld1q_s8(hc_times4[second]), code.val[1]));
    }
    return i;
}

static inline float32x4_t saturated(float32x4_t value) {
    return vmaxq_f32(vdupq_n_f32(-FLT_MAX), vminq_f32(vdupq_n_f32(FLT_MAX), value));
}

static inline void eight_values(const uint8_t *codes, bool is_signed, int32x4_t zero, int32_t integer, float real,
                                float *to) {
    const uint8x8_t byte = vld1_u8(codes);
    const int16x8_t code = is_signed ? vmovl_s8(vreinterpret_s8_u8(byte)) : vreinterpretq_s16_u16(vmovl_u8(byte));
    const int32x4_t low = vmulq_n_s32(vsubq_s32(vmovl_s16(vget_low_s16(code)), zero), integer);
    const int32x4_t high = vmulq_n_s32(vsubq_s32(vmovl_high_s16(code), zero), integer);
    vst1q_f32(to, saturated(vmulq_n_f32(vcvtq_f32_s32(low), real)));
    vst1q_f32(to + 4, saturated(vmulq_n_f32(vcvtq_f32_s32(high), real)));
}

/* values[j] = real * (integer * (code[j] - zero)), saturated. */
static inline __attribute__((always_inline)) void
simd_values(const uint8_t *codes, int64_t n, bool is_signed, int32_t zero, int32_t integer, float real, float *values) {
    const int32x4_t zero_i32x4 = vdupq_n_s32(zero);
    int64_t i = 0;
    for (; i + 8 <= n; i += 8)
        eight_values(codes + i, is_signed, zero_i32x4, integer, real, values + i);
    if (i < n) {
        float last[8];
        eight_values(codes + i, is_signed, zero_i32x4, integer, real, last);
        memcpy(values + i, last, (size_t)(n - i) * sizeof *last);
    }
}

/* The first, second, third and fourth bytes of 16 floats: four lookups of bytes give a float. */
typedef uint8x16x4_t hc_table16;

static inline hc_table16 load_table16(const float *table) { return vld4q_u8((const uint8_t *)table); }

/* 16 products, each rounded once from float64 and saturated. */
static inline hc_table16 scaled_table16(const double *table, double scale) {
    float product[16];
    for (int i = 0; i < 16; i += 4) {
        const float32x2_t low = vcvt_f32_f64(vmulq_n_f64(vld1q_f64(table + i), scale));
        const float32x4_t all = vcvt_high_f32_f64(low, vmulq_n_f64(vld1q_f64(table + i + 2), scale));
        vst1q_f32(product + i, saturated(all));
    }
    return load_table16(product);
}

/* Elements of 8 codes. */
static inline __attribute__((always_inline)) float32x4x2_t elements_f32x8(const uint8_t *codes, hc_element_kind kind,
                                                                          hc_table16 table, const float *large) {
    const uint8x8_t byte = vld1_u8(codes);
    if (is_by_16(kind)) {
        const uint8x16_t index = vcombine_u8(byte, byte);
        const uint8x16_t low = vzip1q_u8(vqtbl1q_u8(table.val[0], index), vqtbl1q_u8(table.val[1], index));
        const uint8x16_t high = vzip1q_u8(vqtbl1q_u8(table.val[2], index), vqtbl1q_u8(table.val[3], index));
        const uint16x8x2_t whole = vzipq_u16(vreinterpretq_u16_u8(low), vreinterpretq_u16_u8(high));
        return (float32x4x2_t){{vreinterpretq_f32_u16(whole.val[0]), vreinterpretq_f32_u16(whole.val[1])}};
    }
    if (is_by_256(kind)) {
        float value[8];
        for (int i = 0; i < 8; i++)
            value[i] = large[codes[i]];
        return (float32x4x2_t){{vld1q_f32(value), vld1q_f32(value + 4)}};
    }
    const int16x8_t code = vmovl_s8(vreinterpret_s8_u8(byte));
    if (kind == HC_BY_INT8)
        return (float32x4x2_t){
            {vcvtq_n_f32_s32(vmovl_s16(vget_low_s16(code)), 6), vcvtq_n_f32_s32(vmovl_high_s16(code), 6)}};
    const hc_half_form form = half_form(kind);
    uint16x8_t half = vshlq_u16(vreinterpretq_u16_s16(code), vdupq_n_s16((int16_t)form.shift));
    half = vandq_u16(half, vdupq_n_u16((uint16_t)form.mask));
    if (form.beyond) { /* one NaN for all */
        const uint16x8_t sign = vdupq_n_u16(0x8000), magnitude = vbicq_u16(half, sign);
        const uint16x8_t is_nan = vcgtq_u16(magnitude, vdupq_n_u16((uint16_t)form.beyond));
        half = vbslq_u16(vbicq_u16(is_nan, sign), vdupq_n_u16(0x7e00), half);
    }
    const float factor = kind == HC_BY_E5M2 ? 1 : form.factor;
    return (float32x4x2_t){{vmulq_n_f32(widened_low(half), factor), vmulq_n_f32(widened_high(half), factor)}};
}

static inline __attribute__((always_inline)) float32x4_t scaled_f32x4(float32x4_t element, hc_element_kind kind,
                                                                      float scale) {
    const float32x4_t product = vmulq_f32(vdupq_n_f32(scale), element), value = saturated(product);
    if (has_no_minus_zero(kind))
        return vaddq_f32(value, vdupq_n_f32(0));
    if (kind != HC_BY_E5M2)
        return value;
    return vbslq_f32(vcagtq_f32(element, vdupq_n_f32(FLT_MAX)), product, value);
}

/* values[j] = element of code[j], times the scale, which saturates what is finite; reads up to 7 codes more. */
static inline __attribute__((always_inline)) void simd_elements(const uint8_t *codes, int64_t n, hc_element_kind kind,
                                                                hc_table16 table, const float *large, bool scaled,
                                                                float scale, float *values) {
    for (int64_t i = 0; i < n; i += 8) {
        float32x4x2_t value = elements_f32x8(codes + i, kind, table, large);
        for (int half = 0; half < 2 && scaled; half++)
            value.val[half] = scaled_f32x4(value.val[half], kind, scale);
        float last[8], *to = n - i >= 8 ? values + i : last;
        vst1q_f32(to, value.val[0]);
        vst1q_f32(to + 4, value.val[1]);
        if (n - i < 8)
            memcpy(values + i, last, (size_t)(n - i) * sizeof *last);
    }
}

/* Factors of groups in blocks, many at a time: none with this set. */
static inline int64_t simd_block_factors(int bits, bool in_pairs, bool is_minimum, const uint8_t *from,
                                         const uint8_t *coarse, int64_t n, float *out) {
    (void)bits, (void)in_pairs, (void)is_minimum, (void)from, (void)coarse, (void)n, (void)out;
    return 0;
}

/* --- several floats as one; formats/lanes.h has one and says what each does --- */

enum { LANES = 4 };
typedef float32x4_t lanes;
typedef uint32x4_t lanes_mask;
static inline lanes lanes_load(const float *from) { return vld1q_f32(from); }
static inline void lanes_store(float *to, lanes a) { vst1q_f32(to, a); }
static inline lanes lanes_of(float a) { return vdupq_n_f32(a); }
static inline lanes lanes_add(lanes a, lanes b) { return vaddq_f32(a, b); }
static inline lanes lanes_sub(lanes a, lanes b) { return vsubq_f32(a, b); }
static inline lanes lanes_mul(lanes a, lanes b) { return vmulq_f32(a, b); }
static inline lanes lanes_div(lanes a, lanes b) { return vdivq_f32(a, b); }
static inline lanes lanes_min(lanes a, lanes b) { return vbslq_f32(vcltq_f32(a, b), a, b); }
static inline lanes lanes_max(lanes a, lanes b) { return vbslq_f32(vcgtq_f32(a, b), a, b); }
static inline lanes lanes_abs(lanes a) { return vabsq_f32(a); }
static inline lanes_mask lanes_above(lanes a, lanes b) { return vcgtq_f32(a, b); }
static inline lanes_mask lanes_both(lanes_mask a, lanes_mask b) { return vandq_u32(a, b); }
static inline lanes lanes_pick(lanes_mask mask, lanes a, lanes b) { return vbslq_f32(mask, a, b); }
static inline lanes lanes_trunc(lanes a) { return vcvtq_f32_s32(vcvtq_s32_f32(a)); }
static inline lanes lanes_nearest(lanes a) { return vrndnq_f32(a); }
static inline lanes lanes_add_exact(lanes sum, lanes a, lanes b) { return vfmaq_f32(sum, a, b); }
static inline void lanes_turn(lanes *a) {
    const float32x4x2_t low = vtrnq_f32(a[0], a[1]), high = vtrnq_f32(a[2], a[3]);
#pragma GCC unroll 2
    for (int i = 0; i < 2; i++) { /* columns i and i + 2 of 4 rows */
        const float64x2_t first = vreinterpretq_f64_f32(low.val[i]), second = vreinterpretq_f64_f32(high.val[i]);
        a[i] = vreinterpretq_f32_f64(vzip1q_f64(first, second));
        a[i + 2] = vreinterpretq_f32_f64(vzip2q_f64(first, second));
    }
}
static inline void lanes_store_bytes(uint8_t *to, lanes a) {
    const uint16x4_t words = vreinterpret_u16_s16(vmovn_s32(vcvtq_s32_f32(a)));
    const uint8x8_t bytes = vmovn_u16(vcombine_u16(words, words));
    const uint32_t four = vget_lane_u32(vreinterpret_u32_u8(bytes), 0);
    memcpy(to, &four, sizeof four);
}

#endif
