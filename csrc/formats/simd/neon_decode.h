/* Primitives of NEON that convert codes to values, integers and bytes. */
#ifndef HC_SIMD_NEON_DECODE_H
#define HC_SIMD_NEON_DECODE_H

#include "formats/simd/arm.h"
#include "formats/simd/codes.h"

#include <float.h>
#include <string.h>

/* 32 unsigned 4-bit codes as bytes. */
static inline uint8x16x2_t nibbles(const uint8_t *from) {
    const uint8x16_t pair = vld1q_u8(from);
    return vzipq_u8(vandq_u8(pair, vdupq_n_u8(15)), vshrq_n_u8(pair, 4));
}

/* Unpacks 4-bit codes to bytes, 32 at a time; returns the number of unpacked codes, the largest multiple of 32 in n. */
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

/* Unpacks codes of up to 7 bits to bytes, 16 at a time; returns the number of unpacked codes. It stops before a load
 * would pass `end`. Each code is within two bytes; they become a 16-bit number, which is shifted. */
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

/* Looks up codes below 16 in a table, 16 at a time; returns the number of converted codes. */
static inline int64_t simd_lookup16(const uint8_t *codes, int64_t n, const int8_t table[16], int8_t *out) {
    const int8x16_t values = vld1q_s8(table);
    int64_t i = 0;
    for (; i + 16 <= n; i += 16)
        vst1q_s8(out + i, vqtbl1q_s8(values, vld1q_u8(codes + i)));
    return i;
}

/* Multiplies signed 4-bit codes by the 4-bit scales of their groups, 64 codes at a time; returns the number of
 * converted codes. The first scale is in the low half of a byte. A group has 16, 32 or 64 codes. Each scale has a table
 * of its products with all codes. */
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

/* values[j] = real * (scale * code[j]), saturated, for 64 signed 4-bit codes in groups of 16 with a 4-bit scale
 * each. */
static inline __attribute__((always_inline)) void simd_folded_values(const uint8_t *codes, const uint8_t *scales,
                                                                     float real, float *values) {
#pragma GCC unroll 4
    for (int i = 0; i < 4; i++) {
        const uint8x8_t pair = vld1_u8(codes + 8 * i);
        const uint8x8x2_t both = vzip_u8(vand_u8(pair, vdup_n_u8(15)), vshr_n_u8(pair, 4));
        const int8x16_t table = vld1q_s8(hc_times4[scales[i / 2] >> i % 2 * 4 & 15]);
        const int8x16_t folded = vqtbl1q_s8(table, vcombine_u8(both.val[0], both.val[1]));
        const int16x8_t words[2] = {vmovl_s8(vget_low_s8(folded)), vmovl_high_s8(folded)};
#pragma GCC unroll 2
        for (int half = 0; half < 2; half++) {
            const float32x4_t low = vcvtq_f32_s32(vmovl_s16(vget_low_s16(words[half])));
            const float32x4_t high = vcvtq_f32_s32(vmovl_high_s16(words[half]));
            vst1q_f32(values + 16 * i + 8 * half, saturated(vmulq_n_f32(low, real)));
            vst1q_f32(values + 16 * i + 8 * half + 4, saturated(vmulq_n_f32(high, real)));
        }
    }
}

/* The first, second, third and fourth bytes of 16 floats. A float is looked up as four bytes. */
typedef uint8x16x4_t hc_table16;

static inline hc_table16 load_table16(const float *table) { return vld4q_u8((const uint8_t *)table); }

/* scale * (integer * entry), saturated. The exact product integer * entry is never minus zero. */
static inline __attribute__((always_inline)) hc_table16 simd_scaled_entries(const float *table, hc_element_kind kind,
                                                                            const bool has_integer, float integer,
                                                                            float scale) {
    const float32x4_t zero = vdupq_n_f32(0);
    float entries[16];
#pragma GCC unroll 4
    for (int i = 0; i < 16; i += 4) {
        float32x4_t entry = vld1q_f32(table + i);
        if (has_integer)
            entry = vaddq_f32(vmulq_n_f32(entry, integer), zero);
        entry = saturated(vmulq_n_f32(entry, scale));
        vst1q_f32(entries + i, has_no_minus_zero(kind) ? vaddq_f32(entry, zero) : entry);
    }
    return load_table16(entries);
}

/* values[j] = table entry of the 4-bit code j; n is a multiple of 16. */
static inline __attribute__((always_inline)) void simd_lookup4(const uint8_t *codes, int64_t n, hc_table16 table,
                                                               float *values) {
    for (int64_t i = 0; i < n; i += 16) {
        const uint8x8_t pair = vld1_u8(codes + i / 2);
        const uint8x8x2_t both = vzip_u8(vand_u8(pair, vdup_n_u8(15)), vshr_n_u8(pair, 4));
        const uint8x16_t index = vcombine_u8(both.val[0], both.val[1]);
        const uint8x16x2_t low = vzipq_u8(vqtbl1q_u8(table.val[0], index), vqtbl1q_u8(table.val[1], index));
        const uint8x16x2_t high = vzipq_u8(vqtbl1q_u8(table.val[2], index), vqtbl1q_u8(table.val[3], index));
#pragma GCC unroll 2
        for (int half = 0; half < 2; half++) {
            const uint16x8x2_t whole =
                vzipq_u16(vreinterpretq_u16_u8(low.val[half]), vreinterpretq_u16_u8(high.val[half]));
            vst1q_f32(values + i + 8 * half, vreinterpretq_f32_u16(whole.val[0]));
            vst1q_f32(values + i + 8 * half + 4, vreinterpretq_f32_u16(whole.val[1]));
        }
    }
}

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
    if (form.beyond) { /* NaN loses its payload and keeps its sign */
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

/* values[j] = element of code[j], times the scale if `scaled`; finite elements saturate. Reads up to 7 codes too
 * many. */
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

/* Factors of groups in blocks (avx512_decode.h): this set has no kernel for them and returns 0. */
static inline int64_t simd_block_factors(int bits, bool in_pairs, bool is_minimum, const uint8_t *from,
                                         const uint8_t *coarse, int64_t n, float *out) {
    (void)bits, (void)in_pairs, (void)is_minimum, (void)from, (void)coarse, (void)n, (void)out;
    return 0;
}

#endif
