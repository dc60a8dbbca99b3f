/* Blocks of ggml, llama.cpp's library (src/ggml-common.h): one float16 per 32 values, or float16s per 256 values and
 * small integers per 16 or 32 of them. The components contain the same numbers as ggml's blocks, in the order of this
 * package.
 *
 *   value = scale * code + minimum     scale = d, or d * s     minimum = m, or -(e * m)     both exact in float32
 *
 * Option 0 is the type, an entry of GGML_KIND. encode_blocks.h encodes blocks.
 */
#include "formats/ggml/ggml.h"
#include "base/lanes/scalar.h"

#include "formats/ggml/encode_blocks.h"

static hc_status ggml_check(const hc_format *format, hc_error *error) {
    if (ggml_type(format) < 0 || ggml_type(format) >= GGML_KINDS)
        return hc_fail(error, HC_VALUE, "format: ggml has type %d, expected 0 to %d", ggml_type(format),
                       GGML_KINDS - 1);
    const hc_ggml_kind *kind = ggml_kind(format);
    if (format->bits != kind->bits || format->group != kind->group)
        return hc_fail(error, HC_VALUE, "format: %s has %d bits and group %d, expected %d and %d", kind->name,
                       (int)format->bits, (int)format->group, kind->bits, kind->group);
    if (format->m != 0)
        return hc_fail(error, HC_VALUE, "format: %s holds blocks of %d values and takes no pattern", kind->name,
                       kind->block);
    return HC_OK;
}

/* Types with the bytes of ggml have no search. */
static bool ggml_weighs(const hc_format *format) {
    return ggml_kind(format)->scale_bits != 0 || ggml_kind(format)->has_levels;
}

static int ggml_unit(const hc_format *format) { return ggml_kind(format)->block; }

static void ggml_layout(const hc_format *format, const hc_geometry *geometry,
                        hc_component_layout layout[HC_N_COMPONENTS]) {
    const hc_ggml_kind *kind = ggml_kind(format);
    const int64_t blocks = geometry->padded / kind->block;
    layout[HC_CODES] = (hc_component_layout){true, true, HC_U8, 1, {hc_row_bytes(geometry->padded, kind->bits), 0}};
    hc_component_layout factor = {true, true, HC_F16, 1, {geometry->groups, 0}};
    if (kind->scale_bits) {
        factor = (hc_component_layout){true, true, HC_U8, 1, {hc_row_bytes(geometry->groups, kind->scale_bits), 0}};
        layout[HC_COARSE] = (hc_component_layout){true, true, HC_F16, kind->has_minimum ? 2 : 1, {blocks, 2}};
    }
    layout[HC_SCALES] = factor;
    if (kind->has_minimum)
        layout[HC_MINIMA] = factor;
}

/* With minima, the codes in matmuls with floats are decoded values, so they have no scale. */
static bool ggml_has_groups(const hc_format *format) { return !ggml_kind(format)->has_minimum; }

static inline void ggml_pack(const uint8_t *codes, int64_t n, int bits, uint8_t *out) {
    hc_bit_writer writer = {out, 0, 0};
    for (int64_t i = 0; i < n; i++)
        hc_write_bits(&writer, codes[i], bits);
    hc_flush_bits(&writer);
}

static int64_t encode(const hc_format *format, const hc_geometry *geometry, const hc_encode_state *state,
                      const hc_float_rows *x, const float *thresholds, const hc_components *out) {
    (void)thresholds;
    return ggml_encode(ggml_kind(format), geometry, x, state->weights, out);
}

static int32_t integer_of(const hc_ggml_kind *kind, uint32_t code) {
    if (kind->has_levels)
        return GGML_LEVEL[code];
    return kind->is_signed ? hc_sign_extend(code, kind->bits) : (int32_t)code;
}

/* The value of the code of a column. */
static double load_code(const hc_ggml_kind *kind, const uint8_t *codes, int64_t column) {
    return integer_of(kind, hc_read_bits(codes, column, kind->bits));
}

static int64_t ggml_decode_f64(const hc_format *format, const hc_geometry *geometry, const hc_components *components,
                               const hc_tile *tile, double *values, int64_t ld) {
    const hc_ggml_kind *kind = ggml_kind(format);
    for (int64_t i = 0; i < tile->rows; i++) {
        const int64_t row = tile->first_row + i;
        const uint8_t *codes = hc_part(components, HC_CODES, row);
        HC_FOR_GROUPS(tile, geometry) {
            const double scale = (double)ggml_scale(kind, components, row, group);
            const double minimum = (double)ggml_minimum(kind, components, row, group);
            for (int64_t j = c; j < last; j++) {
                const double value = scale * load_code(kind, codes, tile->first_column + j);
                values[i * ld + j] = kind->has_minimum ? value + minimum : value; /* adding 0 would lose minus zero */
            }
        }
    }
    return HC_DONE;
}

static int64_t ggml_decode(const hc_format *format, const hc_geometry *geometry, const hc_components *components,
                           const hc_tile *tile, float *values, int64_t ld) {
    const hc_ggml_kind *kind = ggml_kind(format);
    for (int64_t i = 0; i < tile->rows; i++) {
        const int64_t row = tile->first_row + i;
        hc_bit_reader codes = hc_bits_from(hc_part(components, HC_CODES, row), tile->first_column, kind->bits);
        HC_FOR_GROUPS(tile, geometry) {
            const float scale = ggml_scale(kind, components, row, group);
            const float minimum = ggml_minimum(kind, components, row, group);
            for (int64_t j = c; j < last; j++) { /* the product is exact, so the sum is rounded once */
                const float value = scale * (float)integer_of(kind, hc_next_bits(&codes, kind->bits));
                values[i * ld + j] = kind->has_minimum ? value + minimum : value;
            }
        }
    }
    return HC_DONE;
}

static void ggml_int_form(const hc_format *format, hc_int_mode mode, hc_int_form *form) {
    const hc_ggml_kind *kind = ggml_kind(format);
    form->available = mode == HC_INT_GROUPED && !kind->has_levels;
    form->has_minima = kind->has_minimum;
    form->max_abs = kind->bits == 8 ? 127 : kind->is_signed ? 1 << (kind->bits - 1) : (1 << kind->bits) - 1;
    form->n_limbs = 1;
}

static int64_t ggml_decode_int(const hc_format *format, const hc_geometry *geometry, const hc_components *components,
                               const hc_tile *tile, hc_int_mode mode, const hc_int_tile *out) {
    (void)mode;
    const hc_ggml_kind *kind = ggml_kind(format);
    for (int64_t i = 0; i < tile->rows; i++) {
        const int64_t row = tile->first_row + i;
        hc_bit_reader codes = hc_bits_from(hc_part(components, HC_CODES, row), tile->first_column, kind->bits);
        float *scales = out->group_scale + i * out->groups_ld;
        HC_FOR_GROUPS(tile, geometry) {
            *scales++ = ggml_scale(kind, components, row, group);
            for (int64_t j = c; j < last; j++)
                out->limb[0][i * out->ld + j] = (int8_t)integer_of(kind, hc_next_bits(&codes, kind->bits));
        }
    }
    return HC_DONE;
}

static int64_t ggml_decode_codes(const hc_format *format, const hc_geometry *geometry, const hc_components *components,
                                 const hc_tile *tile, const hc_code_tile *out) {
    const hc_ggml_kind *kind = ggml_kind(format);
    for (int64_t i = 0; i < tile->rows; i++)
        out->row_scale[i] = 1.0f;
    if (kind->has_minimum)
        return ggml_decode(format, geometry, components, tile, out->codes, out->codes_ld);
    for (int64_t i = 0; i < tile->rows; i++) {
        const int64_t row = tile->first_row + i;
        const uint8_t *codes = hc_part(components, HC_CODES, row);
        float *scales = out->scales + i * out->scales_ld;
        HC_FOR_GROUPS(tile, geometry) {
            *scales++ = ggml_scale(kind, components, row, group);
            for (int64_t j = c; j < last; j++)
                out->codes[i * out->codes_ld + j] = (float)load_code(kind, codes, tile->first_column + j);
        }
    }
    return HC_DONE;
}

static void row_scales(const hc_format *format, const hc_geometry *geometry, const hc_components *components,
                       int64_t row, float *scales) {
    for (int64_t group = 0; group < geometry->groups; group++)
        scales[group] = ggml_scale(ggml_kind(format), components, row, group);
}

static void ggml_minima(const hc_format *format, const hc_geometry *geometry, const hc_components *components,
                        int64_t row, float *minima) {
    for (int64_t group = 0; group < geometry->groups; group++)
        minima[group] = ggml_minimum(ggml_kind(format), components, row, group);
}

static double level_of(const hc_format *format, uint32_t code) {
    (void)format;
    return (double)GGML_LEVEL[code];
}

static void ggml_stored_form(const hc_format *format, hc_stored_form *form) {
    const hc_ggml_kind *kind = ggml_kind(format);
    *form = (hc_stored_form){.bits = kind->bits,
                             .codes = kind->has_levels ? HC_CODES_TABLE : HC_CODES_INTEGER,
                             .scale = kind->scale_bits ? HC_SCALE_OWN : HC_SCALE_F16,
                             .scale_bits = kind->scale_bits,
                             .row_scales = row_scales};
    if (kind->has_levels) {
        form->level = level_of;
        hc_form_fill_table(format, form);
        return;
    }
    form->is_signed = kind->is_signed;
    form->has_minima = kind->has_minimum;
    /* q8_0 has no code -128, and ternary codes have no -2 */
    form->lowest = kind->is_signed ? -(1 << (kind->bits - 1)) + (kind->bits == 8 || ggml_is_ternary(kind)) : 0;
    form->largest = hc_largest_code(kind->bits, !kind->is_signed);
}

HC_FORMAT_OPS(ggml, "blocks of ggml: a float16 for 32 values, or for 256 and integer scales below it",
              .has_groups = ggml_has_groups, .weighs = ggml_weighs, .unit = ggml_unit, .encode = encode,
              .int_form = ggml_int_form, .decode_int = ggml_decode_int, .minima = ggml_minima);
