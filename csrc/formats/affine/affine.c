/* Integers with a scale and a minimum per group, or per row (group 0).
 *
 *   m = min(x)     s = (max(x) - m) / (2^b - 1)     q = clip(RNE((x - m) / s), 0, 2^b - 1)     value = s * q + m
 *
 * Padding of a short group counts for neither m nor s.
 * option[0]: s and m are float16, of at most 65504; s is computed with the stored m, and q with the stored s and m.
 * Other programs have float zero points z instead, with m = -s z: HQQ, MLX (biases), MatMulNBits of onnxruntime.
 */
#include "formats/affine/affine.h"

static hc_status affine_check(const hc_format *format, hc_error *error) {
    if (format->bits < 2 || format->bits > 8)
        return hc_fail(error, HC_VALUE, "format: affine has %d bits, expected 2 to 8", (int)format->bits);
    if (format->group < 0)
        return hc_fail(error, HC_VALUE, "format: affine has group %d, expected at least 1, or 0 for one a row",
                       (int)format->group);
    return HC_OK;
}

static void affine_layout(const hc_format *format, const hc_geometry *geometry,
                          hc_component_layout layout[HC_N_COMPONENTS]) {
    const hc_dtype dtype = affine_has_halves(format) ? HC_F16 : HC_F32;
    layout[HC_CODES] = (hc_component_layout){true, true, HC_U8, 1, {hc_row_bytes(geometry->padded, format->bits), 0}};
    layout[HC_SCALES] = layout[HC_MINIMA] = (hc_component_layout){true, true, dtype, 1, {geometry->groups, 0}};
}

/* In matmuls with floats the codes are decoded values, so they have no scale. */
static bool affine_has_groups(const hc_format *format) {
    (void)format;
    return false;
}

static inline void affine_pack(const uint8_t *codes, int64_t n, int bits, uint8_t *out) {
    hc_bit_writer writer = {out, 0, 0};
    for (int64_t i = 0; i < n; i++)
        hc_write_bits(&writer, codes[i], bits);
    hc_flush_bits(&writer);
}

static int64_t encode(const hc_format *format, const hc_geometry *geometry, const hc_encode_state *state,
                      const hc_float_rows *x, const float *thresholds, const hc_components *out) {
    (void)state, (void)thresholds;
    return affine_encode(format, geometry, x, out);
}

static int64_t affine_decode(const hc_format *format, const hc_geometry *geometry, const hc_components *components,
                             const hc_tile *tile, float *values, int64_t ld) {
    for (int64_t i = 0; i < tile->rows; i++) {
        const int64_t row = tile->first_row + i;
        const uint8_t *codes = hc_part(components, HC_CODES, row);
        HC_FOR_GROUPS(tile, geometry) {
            const double scale = (double)affine_factor(format, components, HC_SCALES, row, group);
            const double minimum = (double)affine_factor(format, components, HC_MINIMA, row, group);
            for (int64_t j = c; j < last; j++) {
                const int32_t code = (int32_t)hc_read_bits(codes, tile->first_column + j, format->bits);
                values[i * ld + j] = affine_value(format, scale, minimum, code);
            }
        }
    }
    return HC_DONE;
}

static int64_t affine_decode_f64(const hc_format *format, const hc_geometry *geometry, const hc_components *components,
                                 const hc_tile *tile, double *values, int64_t ld) {
    for (int64_t i = 0; i < tile->rows; i++) {
        const int64_t row = tile->first_row + i;
        const uint8_t *codes = hc_part(components, HC_CODES, row);
        HC_FOR_GROUPS(tile, geometry) {
            const double scale = (double)affine_factor(format, components, HC_SCALES, row, group);
            const double minimum = (double)affine_factor(format, components, HC_MINIMA, row, group);
            for (int64_t j = c; j < last; j++)
                values[i * ld + j] = scale * hc_read_bits(codes, tile->first_column + j, format->bits) + minimum;
        }
    }
    return HC_DONE;
}

static void affine_int_form(const hc_format *format, hc_int_mode mode, hc_int_form *form) {
    form->available = mode == HC_INT_GROUPED && format->m == 0; /* the zeros of a pattern have no minimum */
    form->has_minima = true;
    form->max_abs = hc_largest_code(format->bits, true);
    form->n_limbs = hc_limbs_for(form->max_abs);
}

static int64_t affine_decode_int(const hc_format *format, const hc_geometry *geometry, const hc_components *components,
                                 const hc_tile *tile, hc_int_mode mode, const hc_int_tile *out) {
    (void)mode;
    const int n_limbs = hc_limbs_for(hc_largest_code(format->bits, true));
    for (int64_t i = 0; i < tile->rows; i++) {
        const int64_t row = tile->first_row + i;
        const uint8_t *codes = hc_part(components, HC_CODES, row);
        float *scales = out->group_scale + i * out->groups_ld;
        HC_FOR_GROUPS(tile, geometry) {
            *scales++ = affine_factor(format, components, HC_SCALES, row, group);
            for (int64_t j = c; j < last; j++)
                hc_store_limbs(out, n_limbs, i * out->ld + j,
                               (int32_t)hc_read_bits(codes, tile->first_column + j, format->bits));
        }
    }
    return HC_DONE;
}

static int64_t affine_decode_codes(const hc_format *format, const hc_geometry *geometry,
                                   const hc_components *components, const hc_tile *tile, const hc_code_tile *out) {
    for (int64_t i = 0; i < tile->rows; i++)
        out->row_scale[i] = 1.0f;
    return affine_decode(format, geometry, components, tile, out->codes, out->codes_ld);
}

static void affine_minima(const hc_format *format, const hc_geometry *geometry, const hc_components *components,
                          int64_t row, float *minima) {
    for (int64_t group = 0; group < geometry->groups; group++)
        minima[group] = affine_factor(format, components, HC_MINIMA, row, group);
}

static void affine_stored_form(const hc_format *format, hc_stored_form *form) {
    *form = (hc_stored_form){.bits = format->bits,
                             .codes = HC_CODES_INTEGER,
                             .has_minima = true,
                             .largest = hc_largest_code(format->bits, true),
                             .scale = affine_has_halves(format) ? HC_SCALE_F16 : HC_SCALE_F32};
}

HC_FORMAT_OPS(affine, "integers with a scale and a minimum for a row or a group: zero points that are floats",
              .has_groups = affine_has_groups, .encode = encode, .int_form = affine_int_form,
              .decode_int = affine_decode_int, .minima = affine_minima);
