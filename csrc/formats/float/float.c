/* Small floats, one per value: rounded once, RNE, from the precision of the input (formats/minifloat.h).
 *
 *   no scale   code = RNE(x)              row, tensor, group   s = absmax / largest of the type, float32
 *   value = float32(s * element)                               code = RNE(x / s), the quotient float64
 *
 * option[0]: the type. option[1]: larger values saturate; otherwise they become infinity or NaN if the type has it.
 * option[2]: 0 no scale, 1 one per row (scales), 2 one for the array (coarse), 3 one per group. A scale of 0 makes all
 * codes 0.
 */
#include "formats/float/float.h"
#include "formats/levels.h"

static const hc_float_type *type_of(const hc_format *format) { return hc_float_type_of(float_type(format)); }

static hc_status float_check(const hc_format *format, hc_error *error) {
    if (float_type(format) < 0 || float_type(format) >= HC_N_FLOAT_TYPES)
        return hc_fail(error, HC_VALUE, "format: float has no type %d, expected 0 to %d", float_type(format),
                       HC_N_FLOAT_TYPES - 1);
    if (format->bits != type_of(format)->bits)
        return hc_fail(error, HC_VALUE, "format: this float has %d bits, not %d", type_of(format)->bits,
                       (int)format->bits);
    if (float_scaling(format) < FLOAT_UNSCALED || float_scaling(format) >= FLOAT_SCALINGS)
        return hc_fail(error, HC_VALUE, "format: float is scaled by %d, expected 0 to 3", float_scaling(format));
    if (format->group < 0 || (format->group != 0) != (float_scaling(format) == FLOAT_GROUP_SCALED))
        return hc_fail(error, HC_VALUE, "format: float has group %d, expected a group only with scales per group",
                       (int)format->group);
    return HC_OK;
}

static void float_layout(const hc_format *format, const hc_geometry *geometry,
                         hc_component_layout layout[HC_N_COMPONENTS]) {
    layout[HC_CODES] = (hc_component_layout){true, true, HC_U8, 1, {hc_row_bytes(geometry->padded, format->bits), 0}};
    if (float_has_scales(format))
        layout[HC_SCALES] = (hc_component_layout){true, true, HC_F32, 1, {geometry->groups, 0}};
    if (float_scaling(format) == FLOAT_TENSOR_SCALED)
        layout[HC_COARSE] = (hc_component_layout){true, false, HC_F32, 0, {0, 0}};
}

static hc_clip_domain float_clip_domain(const hc_format *format) {
    static const hc_clip_domain domains[] = {HC_CLIP_NONE, HC_CLIP_ABSOLUTE, HC_CLIP_WHOLE, HC_CLIP_ABSOLUTE};
    return domains[float_scaling(format)];
}

static bool float_legal(const hc_format *format, double value) {
    const hc_float_type *type = type_of(format);
    if (float_scaling(format) != FLOAT_UNSCALED)
        return hc_is_legal(value);
    if (isnan(value))
        return type->nan != 0;
    return !isinf(value) || float_saturates(format) || type->infinity != 0 || type->nan != 0;
}

static int float_passes(const hc_format *format) { return float_scaling(format) == FLOAT_TENSOR_SCALED ? 1 : 0; }

/* float32 of the largest magnitude of columns [first, first + n) of a row, or the threshold; clears *legal if a value
 * is invalid. */
static float maximum_of(const hc_float_rows *x, int64_t i, int64_t first, int64_t n, const float *threshold,
                        bool *legal) {
    const float maximum = hc_group_absmax(x, i, first, n, legal);
    return threshold ? *threshold : maximum;
}

static int64_t float_observe(const hc_format *format, const hc_geometry *geometry, int pass, const hc_float_rows *x,
                             const float *thresholds, hc_encode_state *state) {
    (void)format, (void)pass;
    int64_t illegal = HC_DONE;
    for (int64_t i = 0; i < x->rows; i++) {
        bool legal = true;
        state->maximum =
            fmaxf(state->maximum, maximum_of(x, i, 0, geometry->padded, thresholds ? thresholds + i : NULL, &legal));
        if (!legal && illegal == HC_DONE)
            illegal = x->first_row + i;
    }
    return illegal;
}

static void float_finish(const hc_format *format, int pass, hc_encode_state *state) {
    (void)pass;
    state->coarse = state->maximum / hc_float_largest(type_of(format));
}

static int64_t float_encode(const hc_format *format, const hc_geometry *geometry, const hc_encode_state *state,
                            const hc_float_rows *x, const float *thresholds, const hc_components *out) {
    const hc_float_type own = *type_of(format), *type = &own; /* which compilers keep in registers */
    int64_t illegal = HC_DONE;
    /* components that all rows share are written once */
    if (float_scaling(format) == FLOAT_TENSOR_SCALED && x->first_row == 0)
        hc_store_f32(hc_part(out, HC_COARSE, 0), state->coarse);
    for (int64_t i = 0; i < x->rows; i++) {
        const int64_t row = x->first_row + i;
        hc_bit_writer codes = {hc_part(out, HC_CODES, row), 0, 0};
        bool legal = true;
        for (int64_t group = 0; group < geometry->groups; group++) {
            const int64_t first = group * geometry->group;
            double scale = float_scaling(format) == FLOAT_TENSOR_SCALED ? (double)state->coarse : 1;
            float absmax = INFINITY;
            if (float_has_scales(format)) {
                absmax = hc_group_absmax(x, i, first, geometry->group, &legal);
                const float found =
                    (thresholds ? thresholds[i * geometry->groups + group] : absmax) / hc_float_largest(type);
                hc_store_f32((uint8_t *)hc_part(out, HC_SCALES, row) + 4 * group, found);
                scale = (double)found;
            }
            /* scales have 24 bits, ties at most 12 */
            const hc_divisor by = hc_divisor_of(scale, x->dtype == HC_F32 && type->fraction_bits <= 10);
            HC_QUICK(type->bits <= 8 && float_saturates(format) &&
                         hc_quick_floats(&codes, x, i, first, geometry->group, by, absmax, type),
                     continue, return row)
            HC_EXACT_LOOP
            for (int64_t c = first; c < first + geometry->group; c++) {
                const double value = hc_row_value(x, i, c);
                legal = legal && float_legal(format, value);
                const double element = float_scaling(format) == FLOAT_UNSCALED ? value : hc_divided(value, by);
                hc_write_bits(&codes, scale == 0 ? 0 : hc_float_encode(type, element, float_saturates(format)),
                              type->bits);
            }
        }
        hc_flush_bits(&codes);
        if (!legal && illegal == HC_DONE)
            illegal = row;
    }
    return illegal;
}

/* The scale of a group, and the type, which compilers keep in registers. */
typedef struct {
    float scale;
    hc_float_type type;
} hc_loaded;

static hc_loaded load_group(const hc_format *format, const hc_geometry *geometry, const hc_components *components,
                            int64_t row, int64_t group) {
    (void)geometry;
    hc_loaded of = {1.0f, *type_of(format)};
    if (float_scaling(format) == FLOAT_TENSOR_SCALED)
        of.scale = hc_load_f32(hc_part(components, HC_COARSE, row));
    else if (float_scaling(format) != FLOAT_UNSCALED)
        of.scale = hc_load_f32((const uint8_t *)hc_part(components, HC_SCALES, row) + 4 * group);
    return of;
}
static float number_of(const hc_format *format, const hc_loaded *of, uint32_t code) {
    return (void)format, hc_float_decode(&of->type, code);
}
static float value_of(const hc_format *format, const hc_loaded *of, uint32_t code) {
    const float element = number_of(format, of, code);
    return float_scaling(format) == FLOAT_UNSCALED ? element : hc_scaled_element(element, of->scale);
}
static double exact_of(const hc_format *format, const hc_loaded *of, uint32_t code) {
    return (double)of->scale * (double)number_of(format, of, code);
}

#define HC_DECODED float
#define HC_DECODED_GROUPS (format->group != 0)
#include "formats/decoders.h"

static double level_of(const hc_format *format, uint32_t code) {
    return (double)hc_float_decode(type_of(format), code);
}

static void float_stored_form(const hc_format *format, hc_stored_form *form) {
    const bool has_coarse = float_scaling(format) == FLOAT_TENSOR_SCALED;
    *form = (hc_stored_form){.level = level_of,
                             .scale = float_has_scales(format) ? HC_SCALE_F32 : HC_SCALE_NONE,
                             .second = has_coarse ? HC_SECOND_ROW : HC_SECOND_NONE,
                             .is_shared = has_coarse};
    hc_float_store_form(type_of(format), form);
    hc_form_fill_table(format, form);
}

HC_FORMAT_OPS(float, "small floats, alone or scaled to the largest magnitude of a row, of a group or of the array",
              .passes = float_passes, .observe = float_observe, .finish = float_finish, .legal = float_legal,
              .encode = float_encode, .clip_domain = float_clip_domain);
