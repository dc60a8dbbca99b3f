/* The terms of uniform integers for kernels/decode_rows.h; the options are in formats/int.c. */
#include "kernels/decode_rows.h"

static inline float load_scale(const hc_format *format, const uint8_t *scales, int64_t group) {
    return format->option[1] ? hc_f16_to_f32(hc_load_u16(scales + group * 2)) : hc_load_f32(scales + group * 4);
}

static inline void load_terms(const hc_format *format, const hc_geometry *geometry, const hc_components *components,
                              int64_t row, int64_t first_group, int64_t n, hc_terms *terms) {
    const uint8_t *scales = hc_part(components, HC_SCALES, row);
    terms->is_signed = format->option[0] != 0;
    terms->has_integer = false;
    terms->has_zero = !terms->is_signed;
    for (int64_t i = 0; i < n; i++)
        terms->real[i] = load_scale(format, scales, first_group + i);
    if (terms->has_zero)
        unpack_numbers(hc_part(components, HC_ZERO_POINTS, row), (geometry->groups * format->bits + 7) / 8, first_group,
                       n, format->bits, terms->zero);
}

static inline float load_row_scale(const hc_format *format, const hc_components *components, int64_t row) {
    return format->group ? 1.0f : load_scale(format, hc_part(components, HC_SCALES, row), 0);
}

static inline int count_limbs(const hc_format *format, hc_int_mode mode) {
    (void)mode;
    return format->option[0] == 0 && format->bits == 8 ? 2 : 1; /* q - z up to 255 */
}
