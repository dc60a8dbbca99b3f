/* Elements of 9 to 16 bits, which have no table: integers and floats by their fields, many at a time. The loops are vectorized by
 * the compiler.
 */
#ifndef HC_OWN_WIDE_H
#define HC_OWN_WIDE_H

#include "formats/own/record.h"

/* Packs n codes; 8 codes take `bits` bytes. */
static inline void pack_wide(const uint16_t *codes, int64_t n, int bits, uint8_t *out) {
    if (bits == 16) {
        memcpy(out, codes, (size_t)n * 2);
        return;
    }
    for (int64_t i = 0; i < n; i += 8, out += bits) {
        uint64_t half[2] = {0}, words[2];
        for (int64_t j = 0; j < hc_min(8, n - i); j++)
            half[j / 4] |= (uint64_t)codes[i + j] << (j % 4 * bits);
        words[0] = half[0] | half[1] << (4 * bits);
        words[1] = half[1] >> (64 - 4 * bits);
        memcpy(out, words, (size_t)hc_min(bits, (hc_min(8, n - i) * bits + 7) / 8));
    }
}

/* Codes [first, first + n) of a row, first a multiple of 8; writes up to 7 more. */
static inline void unpack_wide(const uint8_t *row, int64_t row_bytes, int64_t first, int64_t n, int bits,
                               uint16_t *out) {
    const uint8_t *from = row + first / 8 * bits, *const end = row + row_bytes;
    const uint64_t mask = ((uint64_t)1 << bits) - 1;
    if (bits == 16) {
        memcpy(out, from, (size_t)n * 2);
        return;
    }
    for (int64_t i = 0; i < n; i += 8, from += bits) {
        uint64_t words[2] = {0};
        if (end - from >= 16)
            memcpy(words, from, sizeof words);
        else
            memcpy(words, from, (size_t)hc_min(bits, end - from));
        const uint64_t high = words[0] >> (4 * bits) | words[1] << (64 - 4 * bits);
        for (int j = 0; j < 4; j++) {
            out[i + j] = (uint16_t)(words[0] >> (j * bits) & mask);
            out[i + 4 + j] = (uint16_t)(high >> (j * bits) & mask);
        }
    }
}

/* True if powers of two of the type's bias are float32. */
static inline bool wide_decodes(const hc_sentence *own) {
    return own->codes == HC_CODES_INTEGER || (own->type.bias >= 0 && own->type.bias <= 127);
}

/* True if float32 quotients that are rounded to odd give the codes of the float64 ones, for finite values. */
static inline bool wide_serves(const hc_sentence *own) {
    const hc_own_float *type = &own->type;
    if (own->ranks > 0 || own->codes == HC_CODES_INTEGER)
        return own->ranks == 0;
    return own->saturates && type->bias <= 127 && type->bias >= -64 &&
           (int)(type->largest >> type->fraction_bits) + 127 - type->bias + 23 - type->fraction_bits <= 254;
}

/* Codes of n float64 quotients. */
static inline void wide_integers(const hc_sentence *own, const double *restrict quotients, int64_t n,
                                 uint16_t *restrict codes) {
    const double places = ldexp(1, own->places), low = own->lowest, high = own->largest;
    const uint32_t mask = ((uint32_t)1 << own->bits) - 1;
    for (int64_t i = 0; i < n; i++) {
        double quotient = quotients[i] * places;
        quotient = quotient < high ? quotient : high;
        quotient = quotient > low ? quotient : low;
        codes[i] = (uint16_t)((uint32_t)(int32_t)((quotient + 0x1.8p52) - 0x1.8p52) & mask);
    }
}

/* Codes of n quotients that were rounded to odd. */
static inline void wide_floats(const hc_sentence *own, const float *restrict odd, int64_t n, uint16_t *restrict codes) {
    const hc_float_type type = own_type(&own->type);
    const bool is_signed = own->is_signed != 0;
    for (int64_t i = 0; i < n; i++) /* without a sign -0 is 0 */
        codes[i] = (uint16_t)hc_float_encode_f32(&type, is_signed || odd[i] > 0 ? odd[i] : 0);
}

/* Numbers of codes. */
static __attribute__((noinline)) void wide_elements(const hc_sentence *own, const uint16_t *restrict codes, int64_t n,
                                                    float *restrict to) {
    if (own->codes == HC_CODES_INTEGER) {
        const float place = (float)ldexp(1, -own->places);
        const int32_t sign = own->is_signed ? 1 << (own->bits - 1) : 0;
        for (int64_t i = 0; i < n; i++)
            to[i] = (float)((codes[i] ^ sign) - sign) * place;
        return;
    }
    const hc_float_type type = own_type(&own->type);
    const int up = 23 - type.fraction_bits, shift = 32 - type.bits;
    const uint32_t mask = ((uint32_t)1 << (type.bits - 1)) - 1, largest = type.largest, infinity = type.infinity;
    const float scale = hc_f32_from_bits((uint32_t)(254 - type.bias) << 23);
    for (int64_t i = 0; i < n; i++) {
        const uint32_t code = codes[i], magnitude = code & mask, sign = (code & (mask + 1)) << shift;
        const uint32_t finite = hc_f32_bits(hc_f32_from_bits(magnitude << up) * scale);
        const uint32_t special = magnitude == infinity ? 0x7f800000u : 0x7fc00000u;
        to[i] = hc_f32_from_bits((magnitude > largest ? special : finite) | sign);
    }
}

#endif
