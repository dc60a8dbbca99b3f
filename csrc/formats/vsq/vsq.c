/* VS-Quant, Dai et al., MLSys 2021 (arXiv 2102.04503), equations 7a to 7j: N-bit codes, one scale per short group.
 *
 *   s(k,i) = absmax(group i of row k) / (2^(N-1) - 1)       x_q = clip(RNE(x / s(k,i))), with the unrounded s
 *   gamma(k) = max_i s(k,i) / (2^M - 1)                     s_q = clip(RNE(s / gamma), 0, 2^M - 1)
 *   value = float32(gamma * (s_q * x_q));   one level: float32(s * x_q)
 *
 * option[0]: M, or 0 for one level. option[1]: unsigned, codes 0 to 2^N - 1, of max(x, 0). option[2]: one gamma for the
 * whole array. option[3]: x_q = clip(RNE(x / (gamma * s_q))), the product exact (not in the paper).
 */
#include "formats/vsq/vsq.h"

static hc_status vsq_check(const hc_format *format, hc_error *error) {
    if (format->bits < 2 || format->bits > 8)
        return hc_fail(error, HC_VALUE, "format: vsq has %d bits, expected 2 to 8", (int)format->bits);
    if (format->group < 1)
        return hc_fail(error, HC_VALUE, "format: vsq has group %d, expected at least 1", (int)format->group);
    if (vsq_scale_bits(format) != 0 && (vsq_scale_bits(format) < 2 || vsq_scale_bits(format) > 10))
        return hc_fail(error, HC_VALUE, "format: vsq has %d scale bits, expected 2 to 10, or 0 for one level",
                       vsq_scale_bits(format));
    if (!vsq_has_two_levels(format) && (vsq_has_tensor_coarse(format) || vsq_is_refit(format)))
        return hc_fail(error, HC_VALUE, "format: vsq with one level has neither a coarse scale nor a refit");
    return HC_OK;
}

static void vsq_layout(const hc_format *format, const hc_geometry *geometry,
                       hc_component_layout layout[HC_N_COMPONENTS]) {
    layout[HC_CODES] = (hc_component_layout){true, true, HC_U8, 1, {hc_row_bytes(geometry->padded, format->bits), 0}};
    if (!vsq_has_two_levels(format)) {
        layout[HC_SCALES] = (hc_component_layout){true, true, HC_F32, 1, {geometry->groups, 0}};
        return;
    }
    layout[HC_SCALES] =
        (hc_component_layout){true, true, HC_U8, 1, {hc_row_bytes(geometry->groups, vsq_scale_bits(format)), 0}};
    layout[HC_COARSE] = (hc_component_layout){true, !vsq_has_tensor_coarse(format), HC_F32, 0, {0, 0}};
}

static hc_clip_domain vsq_clip_domain(const hc_format *format) {
    return vsq_is_unsigned(format) ? HC_CLIP_POSITIVE : HC_CLIP_ABSOLUTE;
}

static int vsq_passes(const hc_format *format) { return vsq_has_tensor_coarse(format) ? 1 : 0; }

/* float32 of the largest magnitude of columns [first, first + n); if a value is invalid, NaN, and *legal is cleared. */
static float group_maximum(const hc_format *format, const hc_float_rows *x, int64_t i, int64_t first, int64_t n,
                           bool *legal) {
    if (x->dtype == HC_F32) { /* compared as integers, which compilers vectorize */
        const float *from = (const float *)x->data + i * x->row_stride + first;
        int32_t absmax = 0, maximum = 0;
        for (int64_t c = 0; c < n; c++) {
            const int32_t bits = (int32_t)hc_f32_bits(from[c]), magnitude = bits & INT32_MAX;
            absmax = magnitude > absmax ? magnitude : absmax;
            maximum = bits > maximum ? bits : maximum;
        }
        const bool finite = absmax < 0x7f800000;
        *legal = *legal && finite;
        return finite ? hc_f32_from_bits((uint32_t)(vsq_is_unsigned(format) ? maximum : absmax)) : NAN;
    }
    double maximum = 0;
    bool finite = true;
    for (int64_t c = first; c < first + n; c++) {
        const double value = hc_row_value(x, i, c), magnitude = vsq_is_unsigned(format) ? value : fabs(value);
        finite = finite && hc_is_legal(value);
        maximum = magnitude > maximum ? magnitude : maximum;
    }
    *legal = *legal && finite;
    return finite ? (float)maximum : NAN;
}

/* The largest magnitude or threshold of a row. Scales are monotonic in it, so it determines the largest scale. */
static float row_maximum(const hc_format *format, const hc_geometry *geometry, const hc_float_rows *x, int64_t i,
                         const float *thresholds, bool *legal) {
    float maximum = group_maximum(format, x, i, 0, geometry->padded, legal);
    if (thresholds) {
        maximum = 0;
        for (int64_t group = 0; group < geometry->groups; group++)
            maximum = fmaxf(maximum, thresholds[i * geometry->groups + group]);
    }
    return maximum;
}

static float coarse_scale(const hc_format *format, float maximum) {
    const float largest_scale = maximum / (float)vsq_largest_code(format);
    return largest_scale / (float)vsq_largest_scale(format);
}

static int64_t vsq_observe(const hc_format *format, const hc_geometry *geometry, int pass, const hc_float_rows *x,
                           const float *thresholds, hc_encode_state *state) {
    (void)pass;
    int64_t illegal = HC_DONE;
    for (int64_t i = 0; i < x->rows; i++) {
        bool legal = true;
        state->maximum = fmaxf(state->maximum, row_maximum(format, geometry, x, i, thresholds, &legal));
        if (!legal && illegal == HC_DONE)
            illegal = x->first_row + i;
    }
    return illegal;
}

static void vsq_finish(const hc_format *format, int pass, hc_encode_state *state) {
    (void)pass;
    state->coarse = coarse_scale(format, state->maximum);
}

/* Encodes one row; `coarse` is gamma, unused with one level. */
static bool encode_row(const hc_format *format, const hc_geometry *geometry, const hc_float_rows *x, int64_t i,
                       const float *thresholds, double coarse, const hc_components *out) {
    const int64_t row = x->first_row + i, n = geometry->group;
    const int32_t largest = vsq_largest_code(format);
    const int32_t smallest = vsq_is_unsigned(format) ? 0 : -largest;
    const bool two_levels = vsq_has_two_levels(format);
    uint8_t *scales = hc_part(out, HC_SCALES, row);
    hc_bit_writer codes = {hc_part(out, HC_CODES, row), 0, 0}, scale_codes = {scales, 0, 0};
    bool legal = true;
    for (int64_t group = 0; group < geometry->groups; group++) {
        const int64_t first = group * n;
        const float absmax = group_maximum(format, x, i, first, n, &legal);
        const float scale = (thresholds ? thresholds[i * geometry->groups + group] : absmax) / (float)largest;
        double divisor = (double)scale;
        if (two_levels) {
            const int32_t top = vsq_largest_scale(format);
            const int32_t code = coarse == 0 ? 0 : hc_quotient((double)scale, coarse, 0, top);
            hc_write_bits(&scale_codes, (uint32_t)code, vsq_scale_bits(format));
            if (vsq_is_refit(format) || code == 0)
                divisor = coarse * code;
        } else {
            hc_store_f32(scales + group * 4, scale);
        }
        const hc_divisor by = hc_divisor_of(divisor, x->dtype == HC_F32); /* of 34 bits, a tie of 9 */
        HC_QUICK(smallest < 0 && hc_quick_integers(&codes, x, i, first, n, by, absmax, largest, format->bits), continue,
                 return false)
        HC_EXACT_LOOP
        for (int64_t c = first; c < first + n; c++)
            hc_write_bits(&codes,
                          divisor == 0 ? 0
                                       : (uint32_t)hc_clipped(hc_divided(hc_row_value(x, i, c), by), smallest, largest),
                          format->bits);
    }
    hc_flush_bits(&codes);
    hc_flush_bits(&scale_codes);
    return legal;
}

static int64_t vsq_encode(const hc_format *format, const hc_geometry *geometry, const hc_encode_state *state,
                          const hc_float_rows *x, const float *thresholds, const hc_components *out) {
    int64_t illegal = HC_DONE;
    if (vsq_has_tensor_coarse(format) && x->first_row == 0) /* components that all rows share are written once */
        hc_store_f32(hc_part(out, HC_COARSE, 0), state->coarse);
    for (int64_t i = 0; i < x->rows; i++) {
        float coarse = state ? state->coarse : 0;
        if (vsq_has_two_levels(format) && !vsq_has_tensor_coarse(format)) {
            bool ignored = true;
            coarse = coarse_scale(format, row_maximum(format, geometry, x, i, thresholds, &ignored));
            hc_store_f32(hc_part(out, HC_COARSE, x->first_row + i), coarse);
        }
        if (!encode_row(format, geometry, x, i, thresholds, (double)coarse, out) && illegal == HC_DONE)
            illegal = x->first_row + i;
    }
    return illegal;
}

/* The stored scale of a group, and as two factors: s = real * integer, or one float32 with integer 1. */
typedef struct {
    float scale, real;
    int32_t integer;
} hc_loaded;

static float second_of(const hc_format *format, const hc_components *components, int64_t row) {
    return vsq_has_two_levels(format) ? hc_load_f32(hc_part(components, HC_COARSE, row)) : 1.0f;
}
static hc_loaded load_group(const hc_format *format, const hc_geometry *geometry, const hc_components *components,
                            int64_t row, int64_t group) {
    (void)geometry;
    const uint8_t *scales = hc_part(components, HC_SCALES, row);
    if (!vsq_has_two_levels(format)) {
        const float scale = hc_load_f32(scales + group * 4);
        return (hc_loaded){scale, scale, 1};
    }
    const int32_t integer = (int32_t)hc_read_bits(scales, group, vsq_scale_bits(format));
    return (hc_loaded){(float)integer, second_of(format, components, row), integer};
}
static float whole_scale_of(const hc_format *format, const hc_loaded *of) {
    return vsq_has_two_levels(format) ? hc_saturated((double)of->real * of->integer) : of->real;
}
/* Folded integers contain the integer of their scale. */
static int32_t integer_of(const hc_format *format, const hc_loaded *of, uint32_t code, hc_int_mode mode) {
    const int32_t integer = vsq_is_unsigned(format) ? (int32_t)code : hc_sign_extend(code, format->bits);
    return mode == HC_INT_FOLDED ? of->integer * integer : integer;
}
static float number_of(const hc_format *format, const hc_loaded *of, uint32_t code) {
    return (float)integer_of(format, of, code, HC_INT_GROUPED);
}
static float value_of(const hc_format *format, const hc_loaded *of, uint32_t code) {
    return hc_saturated_product(of->real, (float)integer_of(format, of, code, HC_INT_FOLDED));
}
static double exact_of(const hc_format *format, const hc_loaded *of, uint32_t code) {
    return (double)of->real * integer_of(format, of, code, HC_INT_FOLDED);
}

static void vsq_int_form(const hc_format *format, hc_int_mode mode, hc_int_form *form) {
    form->max_abs = vsq_largest_integer(format, mode);
    form->available = mode == HC_INT_GROUPED || vsq_has_two_levels(format);
    form->n_limbs = hc_limbs_for(form->max_abs);
}

#define HC_DECODED vsq
#define HC_DECODED_INTEGERS
#define HC_DECODED_SECOND
#include "formats/decoders.h"

static void vsq_stored_form(const hc_format *format, hc_stored_form *form) {
    const bool is_unsigned = vsq_is_unsigned(format), has_two_levels = vsq_has_two_levels(format);
    *form = (hc_stored_form){.bits = format->bits,
                             .codes = HC_CODES_INTEGER,
                             .is_signed = !is_unsigned,
                             .lowest = is_unsigned ? 0 : -vsq_largest_code(format),
                             .largest = vsq_largest_code(format),
                             .scale = has_two_levels ? HC_SCALE_INTEGER : HC_SCALE_F32,
                             .scale_bits = vsq_scale_bits(format),
                             .second = has_two_levels ? HC_SECOND_ROW : HC_SECOND_NONE,
                             .is_shared = has_two_levels && vsq_has_tensor_coarse(format)};
}

HC_FORMAT_OPS(vsq, "VS-Quant: integers, one scale for a short group, the scales integers too", .passes = vsq_passes,
              .observe = vsq_observe, .finish = vsq_finish, .encode = vsq_encode, .int_form = vsq_int_form,
              .splits = true, .decode_int = vsq_decode_int, .clip_domain = vsq_clip_domain);
