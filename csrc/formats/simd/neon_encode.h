/* Primitives of NEON that convert values to codes. A unit is four registers.
 *
 * Small floats are rounded as in avx2_encode.h: the addend of a magnitude leaves its code in the low bits of the sum.
 * vminq and vmaxq keep a NaN, as the second operand of x86's min and max does.
 */
#ifndef HC_SIMD_NEON_ENCODE_H
#define HC_SIMD_NEON_ENCODE_H

#include "formats/simd/arm.h"
#include "formats/simd/codes.h"

#include <string.h>

/* One unit of float64 as float32, rounded to odd. */
static inline void simd_odd(const double *x, float *out) {
    for (int i = 0; i < 16; i += 4)
        vst1q_f32(out + i, vcvtx_high_f32_f64(vcvtx_f32_f64(vld1q_f64(x + i)), vld1q_f64(x + i + 2)));
}

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
    } else { /* a slightly smaller and a slightly larger quotient have the same code: no midpoint is between them */
        sum = vreinterpretq_u32_f32(vfmaq_n_f32(add, cut, 1 - HC_QUOTIENT_ERROR));
        const float32x4_t more = vfmaq_n_f32(add, cut, 1 + HC_QUOTIENT_ERROR);
        *apart = vorrq_u32(*apart, veorq_u32(sum, vreinterpretq_u32_f32(more)));
    }
    const uint32x4_t sign = vshlq_u32(vreinterpretq_u32_f32(quotient), vdupq_n_s32(type.bits - 32));
    return vbslq_u32(vdupq_n_u32((1u << (type.bits - 1)) - 1), sum, sign);
}

/* Four units like simd_codes: false if a quotient is near a midpoint. */
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

/* Codes of 4 values by the reciprocal, as int16; `worst` collects the largest distance to an integer. */
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

/* Encodes four units; false if a quotient is near a midpoint, so that the codes must be computed again by division. */
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

/* Exact codes of 4 values: the remainder x - k * s is exact, and shows on which side of the midpoint x is. */
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
    /* all ones is -1: adding it decrements, subtracting it increments */
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

/* Codes of 64 quotients by buckets (formats/own/search.h). False: a quotient is as near to its bound as doubt * bound, is
 * infinite or NaN. doubt may be 0. */
static inline __attribute__((always_inline)) bool simd_search(const float *x, const float *bounds,
                                                              const uint32_t *pairs, int32_t n, int shift, int32_t base,
                                                              float doubt, uint8_t *codes) {
    uint32x4_t unsure = vdupq_n_u32(0);
    for (int i = 0; i < 64; i += 16) {
        uint32x4_t code[4];
        for (int j = 0; j < 4; j++) {
            const float32x4_t quotient = vld1q_f32(x + i + 4 * j), magnitude = vabsq_f32(quotient);
            const int32x4_t bits = vreinterpretq_s32_f32(magnitude);
            const int32x4_t negative = vshrq_n_s32(vreinterpretq_s32_f32(quotient), 31);
            int32x4_t at = vsubq_s32(vshlq_s32(bits, vdupq_n_s32(-shift)), vdupq_n_s32(base));
            at = vminq_s32(vmaxq_s32(at, vdupq_n_s32(0)), vdupq_n_s32(n - 1));
            at = vaddq_s32(at, vandq_s32(negative, vdupq_n_s32(n)));
            int32_t index[4];
            float found[4];
            uint32_t both[4];
            vst1q_s32(index, at);
            for (int k = 0; k < 4; k++) {
                found[k] = bounds[index[k]];
                both[k] = pairs[index[k]];
            }
            const float32x4_t bound = vld1q_f32(found);
            const uint32x4_t pair = vld1q_u32(both), above = vcgtq_f32(magnitude, bound);
            unsure = vorrq_u32(unsure, vcltq_f32(vabdq_f32(magnitude, bound), vmulq_n_f32(bound, doubt)));
            unsure = vorrq_u32(unsure, vcgtq_s32(bits, vdupq_n_s32(0x7e7fffff)));
            code[j] = vandq_u32(vbslq_u32(above, vshrq_n_u32(pair, 8), pair), vdupq_n_u32(255));
        }
        vst1q_u8(codes + i, low_bytes(code));
    }
    return vmaxvq_u32(unsure) == 0;
}

#endif
