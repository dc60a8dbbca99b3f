/* One code, scale and group of a row by the definition, for the scalar kernels and the tails of the others. The chain
 * of a padded last group ends with the last column: a padded code would turn a p of -0 into +0.
 */
#ifndef HC_GEMV_TAIL_H
#define HC_GEMV_TAIL_H

#include "base/convert.h"
#include "kernels/kernel.h"

#include <math.h>

/* Number i of gemv_scales. */
static inline float hc_gemv_scale(const uint8_t *stored, int kind, int64_t i) {
    if (kind == HC_SCALES_F16)
        return hc_f16_to_f32(hc_load_u16(stored + 2 * i));
    if (kind == HC_SCALES_U4)
        return (float)(stored[i / 2] >> (i % 2 * 4) & 15);
    if (kind == HC_SCALES_U8)
        return (float)stored[i];
    if (kind == HC_SCALES_E8M0) /* 2^-127 is subnormal, 255 is NaN */
        return hc_f32_from_bits(stored[i] == 0 ? 0x400000 : stored[i] == 255 ? 0x7fc00000 : (uint32_t)stored[i] << 23);
    /* e4m3fn: the bits of a float16 of 2^-8 times its value, except for its NaN */
    const uint16_t half = (uint16_t)((stored[i] & 0x80) << 8 | (stored[i] & 0x7f) << 7);
    return (stored[i] & 0x7f) == 0x7f ? hc_f32_from_bits(0x7fc00000) : 256 * hc_f16_to_f32(half);
}

/* How the bits of a float of 8 bits become float32: they are shifted from the top of a word down past the sign to their
 * position in float32, with the sign, and a factor exactly changes the exponent's bias; subnormals become normal. */
typedef struct {
    int shift;
    uint32_t kept;
    float factor;
} hc_float8;
static inline hc_float8 hc_float8_of(int exponent_bits) {
    const int shift = 8 - exponent_bits, bias = (1 << exponent_bits) / 2 - 1;
    return (hc_float8){shift, 0x80000000u | 0x7f000000u >> shift, hc_f32_from_bits((uint32_t)(254 - bias) << 23)};
}
static inline float hc_gemv_float8(const hc_gemv_floats_args *args, uint8_t code) {
    const hc_float8 form = hc_float8_of(args->exponent_bits);
    const uint32_t sign = code & 0x80 ? 0x80000000u : 0, magnitude = (code & 0x7fu) << 24 >> form.shift;
    const float value = hc_f32_from_bits(sign | magnitude) * form.factor;
    const bool is_special = (code & args->special_bits) == args->special_bits;
    return is_special ? hc_f32_from_bits(hc_f32_bits(value) | 0x7f800000) : value;
}

/* c of column k in row r. */
static inline float hc_gemv_code(const hc_gemv_floats_args *args, int r, int64_t k, float zero) {
    const uint8_t *codes = args->codes[r];
    if (args->bits == 32)
        return hc_load_f32(codes + 4 * k);
    if (args->bits == 16)
        return args->exponent_bits == 5 ? hc_f16_to_f32(hc_load_u16(codes + 2 * k))
                                        : hc_bf16_to_f32(hc_load_u16(codes + 2 * k));
    if (args->exponent_bits)
        return hc_gemv_float8(args, codes[k]);
    const int code = args->bits == 8 ? codes[k] : codes[k / 2] >> (k % 2 * 4) & 15;
    return args->table[r] ? args->table[r][code] : ((float)(code ^ args->flip) - zero) * args->unit;
}

/* p of group g of row r times vector v, over the columns that exist. Not inlined: kernels call it for few groups, once
 * for each kind of codes. */
static __attribute__((noinline, unused)) float hc_gemv_chain(const hc_gemv_floats_args *args, int r, int v, int64_t g) {
    const int64_t first = g * args->group, n = hc_min(args->group, args->columns - first);
    const float zero = args->zeros[r] ? args->zeros[r][g] : args->zero;
    const float *x = args->x + (g / 16 * args->group * args->n_vectors + v) * 16 + g % 16;
    float p = 0;
    for (int64_t k = 0; k < n; k++)
        p = fmaf(x[k * args->n_vectors * 16], hc_gemv_code(args, r, first + k, zero), p);
    return p;
}

#endif
