/* Names of the options of microscaling, and functions that the definition and the kernels share. */
#ifndef HC_MX_H
#define HC_MX_H

#include "formats/format.h"
#include "formats/minifloat.h"

/* Elements: the types of floats from fp8_e4m3fn on, then int8. */
enum { MX_FIRST_ELEMENT = HC_TYPE_FP8_E4M3FN, MX_INT8 = HC_N_FLOAT_TYPES };
enum { MX_FLOOR = 0, MX_CEIL, MX_RCEIL, MX_EVEN, MX_GGML, MX_N_RULES };
enum { MX_GROUP = 32, MX_NAN_BYTE = 0xff };

static inline int mx_element(const hc_format *format) { return format->option[0]; }
static inline int mx_rule(const hc_format *format) { return format->option[1]; }

static inline int mx_element_bits(const hc_format *format) {
    return mx_element(format) == MX_INT8 ? 8 : hc_float_type_of(mx_element(format))->bits;
}
static inline int mx_fraction_bits(const hc_format *format) {
    return mx_element(format) == MX_INT8 ? 6 : hc_float_type_of(mx_element(format))->fraction_bits;
}
/* Whether elements are 8-bit integers times 2^-mx_fraction_bits. */
static inline bool mx_is_e2(const hc_format *format) {
    return mx_element(format) == HC_TYPE_FP4_E2M1 || mx_element(format) == HC_TYPE_FP6_E2M3;
}
static inline bool mx_has_integers(const hc_format *format) {
    return mx_element(format) == MX_INT8 || mx_is_e2(format);
}
/* The largest magnitude of an element. */
static inline float mx_largest(const hc_format *format) {
    return mx_element(format) == MX_INT8 ? 127.0f / 64 : hc_float_largest(hc_float_type_of(mx_element(format)));
}

/* X of a stored byte. */
static inline float mx_scale(uint8_t byte) {
    return hc_f32_from_bits(byte == MX_NAN_BYTE ? 0x7fc00000 : byte == 0 ? 0x00400000 : (uint32_t)byte << 23);
}

#endif
