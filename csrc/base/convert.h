/* Conversions of float16 and bfloat16, as 16-bit patterns, to float32, and of float32 to float16, RNE; and loads from
 * memory of any alignment. Widening is exact. The arithmetic needs the mode of base/float_env.h: round to nearest,
 * subnormals are kept.
 */
#ifndef HC_CONVERT_H
#define HC_CONVERT_H

#include "base/packed.h"

#include <string.h>

static inline uint32_t hc_f32_bits(float value) {
    uint32_t bits;
    memcpy(&bits, &value, sizeof bits);
    return bits;
}

static inline float hc_f32_from_bits(uint32_t bits) {
    float value;
    memcpy(&value, &bits, sizeof value);
    return value;
}

static inline float hc_f16_to_f32(uint16_t half) {
    const uint32_t magnitude = (uint32_t)(half & 0x7fff) << 13;
    /* 2^112 exactly changes the bias of the exponent and makes subnormals normal */
    uint32_t bits = hc_f32_bits(hc_f32_from_bits(magnitude) * 0x1p112f);
    bits |= (half & 0x7c00) == 0x7c00 ? 0x7f800000u : 0;
    return hc_f32_from_bits(bits | (uint32_t)(half & 0x8000) << 16);
}

static inline uint16_t hc_f32_to_f16(float value) {
    const uint32_t bits = hc_f32_bits(value), sign = bits >> 16 & 0x8000;
    uint32_t magnitude = bits & 0x7fffffff;
    if (magnitude > 0x7f800000)
        return (uint16_t)(sign | 0x7e00 | (magnitude >> 13 & 0x3ff));
    if (magnitude >= 0x477ff000) /* 65520, halfway to 2^16 */
        return (uint16_t)(sign | 0x7c00);
    if (magnitude < 0x38800000) /* 2^-14: the last place of the sum is the smallest subnormal float16 */
        return (uint16_t)(sign | (hc_f32_bits(hc_f32_from_bits(magnitude) + 0.5f) - 0x3f000000));
    magnitude += 0xfff + (magnitude >> 13 & 1);
    return (uint16_t)(sign | (magnitude - 0x38000000) >> 13);
}

static inline float hc_bf16_to_f32(uint16_t half) { return hc_f32_from_bits((uint32_t)half << 16); }

static inline float hc_load_f32(const void *from) {
    float value;
    memcpy(&value, from, sizeof value);
    return value;
}

static inline double hc_load_f64(const void *from) {
    double value;
    memcpy(&value, from, sizeof value);
    return value;
}

static inline uint16_t hc_load_u16(const void *from) {
    uint16_t value;
    memcpy(&value, from, sizeof value);
    return value;
}

/* A value of any float type. */
static inline double hc_load_float(const void *from, hc_dtype dtype) {
    switch (dtype) {
    case HC_F64:
        return hc_load_f64(from);
    case HC_F32:
        return (double)hc_load_f32(from);
    case HC_F16:
        return (double)hc_f16_to_f32(hc_load_u16(from));
    default:
        return (double)hc_bf16_to_f32(hc_load_u16(from));
    }
}

static inline void hc_store_f32(void *to, float value) { memcpy(to, &value, sizeof value); }
static inline void hc_store_f64(void *to, double value) { memcpy(to, &value, sizeof value); }
static inline void hc_store_u16(void *to, uint16_t value) { memcpy(to, &value, sizeof value); }

#endif
