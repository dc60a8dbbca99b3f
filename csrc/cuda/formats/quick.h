/* Codes of float32 values by float32 arithmetic, where it is certain to give those of the definitions.
 *
 * A definition divides in float64 and rounds to a code. Here a value is multiplied by an inverse that is rounded to float32: the
 * product has a relative error below 2^-22. It gives the same code unless it is that close to a tie between two codes. Each function
 * measures how close the values of a group come to a tie. If one comes too close, the function answers false, and the definition
 * encodes the chunk. Values beyond the largest code also are the definition's, as are NaN and infinity.
 */
#ifndef HC_CUDA_QUICK_H
#define HC_CUDA_QUICK_H

#include "formats/bits.h"
#include "formats/minifloat.h"

/* For definitions that answer an error unless all groups are certain. */
#define HC_QUICK_OR_UNSURE(call, done, unsure)                                                                         \
    if (call)                                                                                                          \
        done;                                                                                                          \
    else                                                                                                               \
        unsure;

/* The inverse of a divisor as float32; 0 where none is as precise. */
static inline float hc_quick_inverse(hc_divisor by) {
    const float inverse = (float)by.inverse;
    return by.has_inverse && inverse >= FLT_MIN && inverse <= FLT_MAX ? inverse : 0;
}

/* RNE(x / divisor) as integers of `bits` bits, for |x| <= absmax. The product differs from the quotient by less than
 * (largest + 2) 2^-24. Added to 1.5 2^23, it is rounded to an integer in the lowest bits. */
static inline bool hc_quick_integers(hc_bit_writer *codes, const hc_float_rows *x, int64_t row, int64_t first,
                                     int64_t n, hc_divisor by, float absmax, int32_t largest, int bits) {
    const float inverse = hc_quick_inverse(by), margin = (float)(largest + 2) * 0x1p-24f;
    if (!(inverse > 0 && absmax * inverse < (float)largest + 0.25f))
        return false;
    const float *from = (const float *)x->data + row * x->row_stride + first;
    hc_bit_writer writer = *codes;
    float farthest = 0; /* from an integer */
    for (int64_t c = 0; c < n; c++) {
        const float shifted = fmaf(from[c], inverse, 0x1.8p23f);
        farthest = fmaxf(farthest, fabsf(fmaf(from[c], inverse, -(shifted - 0x1.8p23f))));
        hc_write_bits(&writer, hc_f32_bits(shifted), bits);
    }
    if (!(farthest < 0.5f - margin))
        return false;
    *codes = writer;
    return true;
}

/* hc_float_encode(type, x / divisor, true) of types of at most 8 bits with at most 3 of a fraction, for finite x. The product
 * differs from the quotient by less than 2^-18 units of the last place of the code. */
static inline bool hc_quick_floats(hc_bit_writer *codes, const hc_float_rows *x, int64_t row, int64_t first, int64_t n,
                                   hc_divisor by, float absmax, const hc_float_type *type) {
    const float inverse = hc_quick_inverse(by), largest = hc_float_largest(type);
    if (!(inverse > 0 && absmax * inverse <= FLT_MAX))
        return false;
    const int m = type->fraction_bits;
    const uint32_t least = (uint32_t)(128 - type->bias) << 23;
    const float *from = (const float *)x->data + row * x->row_stride + first;
    hc_bit_writer writer = *codes;
    float closest = -1; /* to a tie */
    for (int64_t c = 0; c < n; c++) {
        /* as hc_float_encode_f32 does */
        const float quotient = from[c] * inverse, clamped = fminf(fabsf(quotient), largest);
        const uint32_t own = hc_f32_bits(clamped) & 0x7f800000, exponent = own < least ? least : own;
        const float place = hc_f32_from_bits(exponent + ((uint32_t)(23 - m) << 23)), sum = clamped + place;
        closest = fmaxf(closest, fmaf(place, -(0x1p-24f - 0x1p-41f), fabsf(clamped - (sum - place))));
        const uint32_t code = (exponent >> (23 - m)) - ((uint32_t)(128 - type->bias) << m) + hc_f32_bits(sum);
        const uint32_t magnitudes = (1u << (type->bits - 1)) - 1; /* the bits of `place` are above these */
        hc_write_bits(&writer, (hc_f32_bits(quotient) >> (32 - type->bits) & ~magnitudes) | (code & magnitudes),
                      type->bits);
    }
    if (!(closest < 0))
        return false;
    *codes = writer;
    return true;
}

#endif
