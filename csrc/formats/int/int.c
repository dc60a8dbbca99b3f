/* Uniform integers of b bits, with one scale per row (group 0) or per group.
 *
 *   symmetric:    s = absmax / (2^(b-1) - 1)                  q = clip(RNE(x / s), -(2^(b-1) - 1), 2^(b-1) - 1)
 *   asymmetric:   s = (max(x, 0) - min(x, 0)) / (2^b - 1)     z = clip(RNE(-min(x, 0) / s), 0, 2^b - 1)
 *                 value = s * (q - z)                         q = clip(RNE(x / s) + z, 0, 2^b - 1)
 *
 * option[0]: symmetric. option[1]: scales are float16, min(s, 65504) rounded; codes follow the stored scale.
 * Codes of 16 and 24 bits (activations) are whole bytes: symmetric, one float32 scale per row.
 */
#include "formats/int/int.h"
#include "formats/levels.h"

static hc_status int_check(const hc_format *format, hc_error *error) {
    const int bits = format->bits;
    if (!((bits >= 2 && bits <= 8) || bits == 16 || bits == 24))
        return hc_fail(error, HC_VALUE, "format: int has %d bits, expected 2 to 8, 16 or 24", bits);
    if (format->group < 0)
        return hc_fail(error, HC_VALUE, "format: int has group %d, expected at least 1, or 0 for one a row",
                       (int)format->group);
    if (bits > 8 && (format->group != 0 || !int_is_symmetric(format) || int_has_half_scales(format)))
        return hc_fail(error, HC_VALUE, "format: int%d is symmetric, with one float32 scale a row", bits);
    return HC_OK;
}

static void int_layout(const hc_format *format, const hc_geometry *geometry,
                       hc_component_layout layout[HC_N_COMPONENTS]) {
    layout[HC_CODES] = (hc_component_layout){true, true, HC_U8, 1, {hc_row_bytes(geometry->padded, format->bits), 0}};
    layout[HC_SCALES] =
        (hc_component_layout){true, true, int_has_half_scales(format) ? HC_F16 : HC_F32, 1, {geometry->groups, 0}};
    if (!int_is_symmetric(format))
        layout[HC_ZERO_POINTS] =
            (hc_component_layout){true, true, HC_U8, 1, {hc_row_bytes(geometry->groups, format->bits), 0}};
}

static hc_clip_domain int_clip_domain(const hc_format *format) {
    (void)format;
    return HC_CLIP_ABSOLUTE;
}

/* Stores the scale of a group; returns the stored value. */
static float store_scale(const hc_format *format, const hc_components *out, int64_t row, int64_t group, float scale) {
    uint8_t *scales = hc_part(out, HC_SCALES, row);
    if (!int_has_half_scales(format)) {
        hc_store_f32(scales + group * 4, scale);
        return scale;
    }
    const uint16_t half = hc_f32_to_f16(scale > 65504.0f ? 65504.0f : scale);
    hc_store_u16(scales + group * 2, half);
    return hc_f16_to_f32(half);
}

/* Encodes the columns of one group; false if a value is invalid. */
static bool encode_group(const hc_format *format, const hc_float_rows *x, int64_t i, int64_t first, int64_t n,
                         const float *threshold, const hc_components *out, int64_t group, hc_bit_writer *codes,
                         hc_bit_writer *zero_points) {
    const int bits = format->bits;
    const int64_t row = x->first_row + i;
    const int32_t largest = int_largest_code(format);
    const bool has_inverse = x->dtype == HC_F32 && bits <= 8; /* a scale has 24 bits, a tie 9 */
    bool legal = true;
    if (int_is_symmetric(format)) {
        const float absmax = hc_group_absmax(x, i, first, n, &legal);
        const double scale =
            (double)store_scale(format, out, row, group, (threshold ? *threshold : absmax) / (float)largest);
        const hc_divisor by = hc_divisor_of(scale, has_inverse);
        HC_QUICK(hc_quick_integers(codes, x, i, first, n, by, absmax, largest, bits), return legal, return false)
        HC_EXACT_LOOP
        for (int64_t c = first; c < first + n; c++)
            hc_write_bits(
                codes, scale == 0 ? 0 : (uint32_t)hc_clipped(hc_divided(hc_row_value(x, i, c), by), -largest, largest),
                bits);
        return legal;
    }
    double low = 0, high = 0;
    for (int64_t c = first; c < first + n; c++) {
        const double value = hc_row_value(x, i, c);
        legal = legal && hc_is_legal(value);
        low = value < low ? value : low;
        high = value > high ? value : high;
    }
    if (threshold) {
        low = low < -(double)*threshold ? -(double)*threshold : low;
        high = high > (double)*threshold ? (double)*threshold : high;
    }
    const double scale = (double)store_scale(format, out, row, group, legal ? (float)((high - low) / largest) : NAN);
    const int32_t zero = scale == 0 ? 0 : hc_quotient(-low, scale, 0, largest);
    hc_write_bits(zero_points, (uint32_t)zero, bits);
    const hc_divisor by = hc_divisor_of(scale, has_inverse);
    for (int64_t c = first; c < first + n; c++) {
        const int32_t code =
            scale == 0 ? 0 : hc_clipped(hc_divided(hc_row_value(x, i, c), by), -zero, largest - zero) + zero;
        hc_write_bits(codes, (uint32_t)code, bits);
    }
    return legal;
}

static int64_t int_encode(const hc_format *format, const hc_geometry *geometry, const hc_encode_state *state,
                          const hc_float_rows *x, const float *thresholds, const hc_components *out) {
    (void)state;
    int64_t illegal = HC_DONE;
    for (int64_t i = 0; i < x->rows; i++) {
        const int64_t row = x->first_row + i;
        hc_bit_writer codes = {hc_part(out, HC_CODES, row), 0, 0}, zero_points = {NULL, 0, 0};
        if (!int_is_symmetric(format))
            zero_points.next = hc_part(out, HC_ZERO_POINTS, row);
        for (int64_t group = 0; group < geometry->groups; group++) {
            const float *threshold = thresholds ? thresholds + i * geometry->groups + group : NULL;
            if (!encode_group(format, x, i, group * geometry->group, geometry->group, threshold, out, group, &codes,
                              &zero_points) &&
                illegal == HC_DONE)
                illegal = row;
        }
        hc_flush_bits(&codes);
        hc_flush_bits(&zero_points);
    }
    return illegal;
}

/* Scale and zero point of a group. */
typedef struct {
    float scale;
    int32_t zero;
} hc_loaded;

static hc_loaded load_group(const hc_format *format, const hc_geometry *geometry, const hc_components *components,
                            int64_t row, int64_t group) {
    (void)geometry;
    hc_loaded of = {int_load_scale(format, hc_part(components, HC_SCALES, row), group), 0};
    if (!int_is_symmetric(format))
        of.zero = (int32_t)hc_read_bits(hc_part(components, HC_ZERO_POINTS, row), group, format->bits);
    return of;
}

/* q - z of a stored code. */
static int32_t integer_of(const hc_format *format, const hc_loaded *of, uint32_t code, hc_int_mode mode) {
    (void)mode;
    return int_is_symmetric(format) ? hc_sign_extend(code, format->bits) : (int32_t)code - of->zero;
}
static float number_of(const hc_format *format, const hc_loaded *of, uint32_t code) {
    return (float)integer_of(format, of, code, HC_INT_GROUPED);
}
static float value_of(const hc_format *format, const hc_loaded *of, uint32_t code) {
    return hc_saturated_product(of->scale, number_of(format, of, code));
}
static double exact_of(const hc_format *format, const hc_loaded *of, uint32_t code) {
    return (double)of->scale * integer_of(format, of, code, HC_INT_GROUPED);
}

static void int_int_form(const hc_format *format, hc_int_mode mode, hc_int_form *form) {
    form->available = mode == HC_INT_GROUPED || format->group == 0;
    form->max_abs = int_largest_code(format);
    form->n_limbs = hc_limbs_for(form->max_abs);
}

#define HC_DECODED int
#define HC_DECODED_GROUPS (format->group != 0)
#define HC_DECODED_INTEGERS
#include "formats/decoders.h"

static void int_stored_form(const hc_format *format, hc_stored_form *form) {
    const bool is_signed = int_is_symmetric(format);
    *form = (hc_stored_form){.bits = format->bits,
                             .codes = HC_CODES_INTEGER,
                             .is_signed = is_signed,
                             .has_zero_points = !is_signed,
                             .is_nearest = format->group == 0 && is_signed && !int_has_half_scales(format),
                             .lowest = is_signed ? -hc_largest_code(format->bits, false) : 0,
                             .largest = hc_largest_code(format->bits, !is_signed),
                             .scale = int_has_half_scales(format) ? HC_SCALE_F16 : HC_SCALE_F32};
}

HC_FORMAT_OPS(int, "uniform integers, one scale for a row or a group, zero point or none", .encode = int_encode,
              .int_form = int_int_form, .decode_int = int_decode_int, .clip_domain = int_clip_domain);
