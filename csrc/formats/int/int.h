/* Names of the options of uniform integers, and functions that the definition and the kernels share. */
#ifndef HC_INT_H
#define HC_INT_H

#include "formats/bits.h"
#include "formats/format.h"

static inline bool int_is_symmetric(const hc_format *format) { return format->option[0] != 0; }
static inline bool int_has_half_scales(const hc_format *format) { return format->option[1] != 0; }

static inline int32_t int_largest_code(const hc_format *format) {
    return hc_largest_code(format->bits, !int_is_symmetric(format));
}

/* Scale of a group, from a row of stored scales. */
static inline float int_load_scale(const hc_format *format, const uint8_t *scales, int64_t group) {
    return int_has_half_scales(format) ? hc_f16_to_f32(hc_load_u16(scales + group * 2))
                                       : hc_load_f32(scales + group * 4);
}

#endif
