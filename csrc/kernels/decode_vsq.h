/* The terms of VS-Quant for kernels/decode_rows.h; the options are in formats/vsq.c. */
#include "kernels/decode_rows.h"

static inline float load_row_scale(const hc_format *format, const hc_components *components, int64_t row) {
    return format->option[0] ? hc_load_f32(hc_part(components, HC_COARSE, row)) : 1.0f;
}

static inline void load_terms(const hc_format *format, const hc_geometry *geometry, const hc_components *components,
                              int64_t row, int64_t first_group, int64_t n, hc_terms *terms) {
    const uint8_t *scales = hc_part(components, HC_SCALES, row);
    const int scale_bits = format->option[0];
    terms->is_signed = format->option[1] == 0;
    terms->has_integer = scale_bits != 0;
    terms->has_zero = false;
    if (scale_bits == 0) {
        memcpy(terms->real, scales + first_group * 4, (size_t)n * 4);
        return;
    }
    const float coarse = load_row_scale(format, components, row);
    for (int64_t i = 0; i < n; i++)
        terms->real[i] = coarse;
    unpack_numbers(scales, (geometry->groups * scale_bits + 7) / 8, first_group, n, scale_bits, terms->integer);
}

static inline int count_limbs(const hc_format *format, hc_int_mode mode) {
    int32_t max_abs = (1 << (format->option[1] ? format->bits : format->bits - 1)) - 1;
    if (mode == HC_INT_FOLDED && format->option[0])
        max_abs *= (1 << format->option[0]) - 1;
    return max_abs <= 127 ? 1 : max_abs <= 32767 ? 2 : 3;
}
