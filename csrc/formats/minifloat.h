/* Small floats: sign, exponent, fraction. Encoding from float64 with one rounding, and decoding.
 *
 *   exponent field e > 0: value = (-1)^s (1 + f / 2^m) 2^(e - bias);   e = 0: (-1)^s (f / 2^m) 2^(1 - bias)
 *
 * fp8: Micikevicius et al., "FP8 Formats for Deep Learning" (arXiv 2209.05433), table 1; fp6, fp4: OCP Microscaling
 * Formats (MX) v1.0, section 5.3. tf32 is a float32 whose 13 low bits are zero.
 */
#ifndef HC_MINIFLOAT_H
#define HC_MINIFLOAT_H

#include "base/form.h"
#include "formats/bits.h"

/* In the order of option[0] of the families. */
typedef enum {
    HC_TYPE_FP32 = 0,
    HC_TYPE_TF32,
    HC_TYPE_BF16,
    HC_TYPE_FP16,
    HC_TYPE_FP8_E4M3FN,
    HC_TYPE_FP8_E5M2,
    HC_TYPE_FP6_E3M2,
    HC_TYPE_FP6_E2M3,
    HC_TYPE_FP4_E2M1,
    HC_N_FLOAT_TYPES
} hc_float_name;

typedef struct {
    int bits; /* of a stored code */
    int fraction_bits, bias;
    int low_zeros;                   /* zero bits at the end of a stored code; the magnitudes below are without them */
    uint32_t largest, infinity, nan; /* magnitudes; 0: the type does not have it */
} hc_float_type;

static inline const hc_float_type *hc_float_type_of(int name) {
    static const hc_float_type types[HC_N_FLOAT_TYPES] = {
        {32, 23, 127, 0, 0x7f7fffff, 0x7f800000, 0x7fc00000}, /* HC_TYPE_FP32 */
        {32, 10, 127, 13, 0x3fbff, 0x3fc00, 0x3fe00},         /* HC_TYPE_TF32 */
        {16, 7, 127, 0, 0x7f7f, 0x7f80, 0x7fc0},              /* HC_TYPE_BF16 */
        {16, 10, 15, 0, 0x7bff, 0x7c00, 0x7e00},              /* HC_TYPE_FP16 */
        {8, 3, 7, 0, 0x7e, 0, 0x7f},                          /* HC_TYPE_FP8_E4M3FN */
        {8, 2, 15, 0, 0x7b, 0x7c, 0x7e},                      /* HC_TYPE_FP8_E5M2 */
        {6, 2, 3, 0, 0x1f, 0, 0},                             /* HC_TYPE_FP6_E3M2 */
        {6, 3, 1, 0, 0x1f, 0, 0},                             /* HC_TYPE_FP6_E2M3 */
        {4, 1, 1, 0, 0x7, 0, 0},                              /* HC_TYPE_FP4_E2M1 */
    };
    return &types[name];
}

static inline uint64_t hc_f64_bits(double value) {
    uint64_t bits;
    memcpy(&bits, &value, sizeof bits);
    return bits;
}

static inline double hc_f64_from_bits(uint64_t bits) {
    double value;
    memcpy(&value, &bits, sizeof value);
    return value;
}

/* The code of a value, RNE. A value beyond the largest gets the largest with `saturate`; otherwise infinity, NaN or the
 * largest, the first of these that the type has. NaN gets the type's NaN, or 0; fp32 keeps infinity and the part of a
 * NaN's payload that fits. */
static inline uint32_t hc_float_encode(const hc_float_type *type, double value, bool saturate) {
    const uint64_t bits = hc_f64_bits(value), magnitude = bits & INT64_MAX, infinity = (uint64_t)0x7ff << 52;
    const int m = type->fraction_bits;
    const bool is_fp32 = m == 23;
    const uint32_t sign = (uint32_t)(bits >> 63) << (type->bits - 1);
    if (magnitude > infinity)
        return type->nan ? sign | type->nan << type->low_zeros | (is_fp32 ? (uint32_t)(magnitude >> 29 & 0x3fffff) : 0)
                         : 0;
    /* The sum's last place is that of the type, below whose normal numbers it is that of subnormals: the addition
     * rounds. Its lowest bits are the fraction with the leading 1, which increments the exponent, as a carry does.
     * 2^129 and more are beyond the largest of every type. */
    const int own = (int)(magnitude >> 52) - 1023, least = 1 - type->bias;
    const int exponent = own < least ? least : own > 129 ? 129 : own;
    const double place = hc_f64_from_bits((uint64_t)(exponent + 52 - m + 1023) << 52);
    const double clamped = hc_f64_from_bits(magnitude);
    const uint32_t rounded = (uint32_t)hc_f64_bits((clamped < 0x1p129 ? clamped : 0x1p129) + place);
    uint32_t code = ((uint32_t)(exponent + type->bias - 1) << m) + rounded;
    if (code > type->largest) {
        code = type->largest;
        if (!saturate || (is_fp32 && magnitude == infinity))
            code = type->infinity ? type->infinity : type->nan ? type->nan : type->largest;
    }
    return sign | code << type->low_zeros;
}

/* The same of a finite float32, saturated, for types of at most 8 bits. */
static inline uint32_t hc_float_encode_f32(const hc_float_type *type, float value) {
    const int m = type->fraction_bits;
    const uint32_t magnitude = hc_f32_bits(value) & INT32_MAX, least = (uint32_t)(128 - type->bias) << 23;
    const uint32_t largest =
        (uint32_t)((int)(type->largest >> m) + 127 - type->bias) << 23 | (type->largest & ((1u << m) - 1)) << (23 - m);
    const uint32_t clamped = magnitude < largest ? magnitude : largest, own = clamped & 0x7f800000;
    const uint32_t exponent = own < least ? least : own;
    const float place = hc_f32_from_bits(exponent + ((uint32_t)(23 - m) << 23));
    const uint32_t rounded = hc_f32_bits(hc_f32_from_bits(clamped) + place); /* below the exponent of `place` */
    const uint32_t code = (exponent >> (23 - m)) - ((uint32_t)(128 - type->bias) << m) + rounded;
    const uint32_t magnitudes = (1u << (type->bits - 1)) - 1;
    return (hc_f32_bits(value) >> (32 - type->bits) & ~magnitudes) | (code & magnitudes);
}

/* The value of a code: exact; NaN is quiet and has the sign of the code. */
static inline float hc_float_decode(const hc_float_type *type, uint32_t code) {
    const int m = type->fraction_bits;
    if (m == 23)
        return hc_f32_from_bits(code);
    const uint32_t sign_bit = (uint32_t)1 << (type->bits - 1), sign = code & sign_bit ? 0x80000000u : 0;
    const uint32_t magnitude = (code & (sign_bit - 1)) >> type->low_zeros;
    if (magnitude > type->largest)
        return hc_f32_from_bits(sign | (magnitude == type->infinity ? 0x7f800000u : 0x7fc00000u));
    /* a power of two exactly changes the bias of the exponent and makes subnormals normal */
    const float scale = hc_f32_from_bits((uint32_t)(254 - type->bias) << 23);
    return hc_f32_from_bits(hc_f32_bits(hc_f32_from_bits(magnitude << (23 - m)) * scale) | sign);
}

static inline float hc_float_largest(const hc_float_type *type) {
    return hc_float_decode(type, type->largest << type->low_zeros);
}

/* Describes how codes of a type are stored. */
static inline void hc_float_store_form(const hc_float_type *type, hc_stored_form *form) {
    form->bits = type->bits;
    form->codes = HC_CODES_FLOAT;
    form->precision = type->fraction_bits + 1;
    form->smallest = 1 - type->bias;
    form->maximum = hc_float_largest(type);
    if (type->bits != 6 && type->bits != 8)
        return;
    form->lift = 8 - type->bits;
    form->exponent_bits = type->bits - 1 - type->fraction_bits;
    form->special_bits =
        form->lift ? 0xff : (int)(type->infinity ? type->infinity : type->nan); /* 0xff: there are none */
}

/* float32(element * scale); finite elements saturate. */
static inline float hc_scaled_element(float element, float scale) {
    return isinf(element) ? element * scale : hc_saturated_product(element, scale);
}

#endif
