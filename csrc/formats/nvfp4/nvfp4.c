/* NVFP4: e2m1 elements, an e4m3 scale for every 16 values, and one float32 p for the array (NVIDIA, "Pretraining Large
 * Language Models with NVFP4", arXiv 2509.25149).
 *
 *   p = absmax of the array / 2688 (= 448 * 6), 1 where that is 0     byte = e4m3(absmax of the group / 6 / p)
 *   S = float32(byte's value * p)     element = RNE(x / S), saturating     value = float32(element * S)
 *
 * Divisions of scales are float32, in this order. If a byte decodes to 0, the codes are 0. option[0], "four over six"
 * (Cook et al., arXiv 2512.02010): p = absmax of the array / 1536 (= 256 * 6), so that 1.5 times every scale is at most
 * 384. Also tries absmax of the group / 4, and uses it if the sum of squared errors of the decoded values is smaller.
 */
#include "formats/nvfp4/nvfp4.h"
#include "formats/levels.h"

static hc_status nvfp4_check(const hc_format *format, hc_error *error) {
    if (format->bits != NVFP4_BITS)
        return hc_fail(error, HC_VALUE, "format: nvfp4 has %d bits, not %d", NVFP4_BITS, (int)format->bits);
    if (format->group != NVFP4_GROUP)
        return hc_fail(error, HC_VALUE, "format: nvfp4 has group %d, expected %d", (int)format->group, NVFP4_GROUP);
    return HC_OK;
}

static void nvfp4_layout(const hc_format *format, const hc_geometry *geometry,
                         hc_component_layout layout[HC_N_COMPONENTS]) {
    (void)format;
    layout[HC_CODES] = (hc_component_layout){true, true, HC_U8, 1, {hc_row_bytes(geometry->padded, NVFP4_BITS), 0}};
    layout[HC_SCALES] = (hc_component_layout){true, true, HC_U8, 1, {geometry->groups, 0}};
    layout[HC_COARSE] = (hc_component_layout){true, false, HC_F32, 0, {0, 0}};
}

static int nvfp4_passes(const hc_format *format) {
    (void)format;
    return 1;
}

static int64_t nvfp4_observe(const hc_format *format, const hc_geometry *geometry, int pass, const hc_float_rows *x,
                             const float *thresholds, hc_encode_state *state) {
    (void)format, (void)pass, (void)thresholds;
    int64_t illegal = HC_DONE;
    for (int64_t i = 0; i < x->rows; i++) {
        bool legal = true;
        state->maximum = fmaxf(state->maximum, hc_group_absmax(x, i, 0, geometry->padded, &legal));
        if (!legal && illegal == HC_DONE)
            illegal = x->first_row + i;
    }
    return illegal;
}

static void nvfp4_finish(const hc_format *format, int pass, hc_encode_state *state) {
    (void)pass;
    const float p = state->maximum / nvfp4_most(format);
    state->coarse = p == 0 ? 1.0f : p;
}

static float group_scale(uint8_t byte, float p) {
    return hc_saturated((double)hc_float_decode(hc_float_type_of(HC_TYPE_FP8_E4M3FN), byte) * (double)p);
}

/* A scale of a group: its byte, and the value of that. */
typedef struct {
    uint8_t byte;
    float value;
} hc_nvfp4_scale;

static hc_nvfp4_scale tensor_scale_of(float scale, float p) {
    const uint8_t byte = (uint8_t)hc_float_encode(hc_float_type_of(HC_TYPE_FP8_E4M3FN), (double)(scale / p), true);
    return (hc_nvfp4_scale){byte, group_scale(byte, p)};
}

/* Scales have 24 bits, ties 3. */
static hc_divisor divisor_of(const hc_float_rows *x, float scale) {
    return hc_divisor_of((double)scale, x->dtype == HC_F32);
}

static uint32_t encode_element(double value, hc_divisor by) {
    return by.divisor == 0 ? 0 : hc_float_encode(hc_float_type_of(HC_TYPE_FP4_E2M1), hc_divided(value, by), true);
}

/* The squared error of the decoded values of a group. */
static double squared_error(const hc_float_rows *x, int64_t i, int64_t first, int64_t n, float scale) {
    const hc_divisor by = divisor_of(x, scale);
    double sum = 0;
    HC_SHORT_LOOP
    for (int64_t c = first; c < first + n; c++) {
        const double value = hc_row_value(x, i, c);
        const float element = hc_float_decode(hc_float_type_of(HC_TYPE_FP4_E2M1), encode_element(value, by));
        const double error = value - (double)hc_scaled_element(element, scale);
        sum += error * error;
    }
    return sum;
}

static int64_t nvfp4_encode(const hc_format *format, const hc_geometry *geometry, const hc_encode_state *state,
                            const hc_float_rows *x, const float *thresholds, const hc_components *out) {
    (void)thresholds;
    int64_t illegal = HC_DONE;
    if (x->first_row == 0) /* components that all rows share are written once */
        hc_store_f32(hc_part(out, HC_COARSE, 0), state->coarse);
    for (int64_t i = 0; i < x->rows; i++) {
        const int64_t row = x->first_row + i;
        hc_bit_writer codes = {hc_part(out, HC_CODES, row), 0, 0};
        uint8_t *scales = hc_part(out, HC_SCALES, row);
        bool legal = true;
        for (int64_t group = 0; group < geometry->groups; group++) {
            const int64_t first = group * geometry->group;
            const float absmax = hc_group_absmax(x, i, first, geometry->group, &legal);
            hc_nvfp4_scale best = tensor_scale_of(absmax / 6.0f, state->coarse);
            if (nvfp4_is_four_over_six(format)) {
                const hc_nvfp4_scale other = tensor_scale_of(absmax / 4.0f, state->coarse);
                if (squared_error(x, i, first, geometry->group, other.value) <
                    squared_error(x, i, first, geometry->group, best.value))
                    best = other;
            }
            scales[group] = best.byte;
            const hc_divisor by = divisor_of(x, best.value);
            HC_QUICK(
                hc_quick_floats(&codes, x, i, first, geometry->group, by, absmax, hc_float_type_of(HC_TYPE_FP4_E2M1)),
                continue, return row)
            HC_EXACT_LOOP
            for (int64_t c = first; c < first + geometry->group; c++)
                hc_write_bits(&codes, encode_element(hc_row_value(x, i, c), by), NVFP4_BITS);
        }
        hc_flush_bits(&codes);
        if (!legal && illegal == HC_DONE)
            illegal = row;
    }
    return illegal;
}

/* The scale of a group. */
typedef struct {
    float scale;
} hc_loaded;

static hc_loaded load_group(const hc_format *format, const hc_geometry *geometry, const hc_components *components,
                            int64_t row, int64_t group) {
    (void)format, (void)geometry;
    const uint8_t *scales = hc_part(components, HC_SCALES, row);
    return (hc_loaded){group_scale(scales[group], hc_load_f32(hc_part(components, HC_COARSE, row)))};
}
static float number_of(const hc_format *format, const hc_loaded *of, uint32_t code) {
    (void)format, (void)of;
    return hc_float_decode(hc_float_type_of(HC_TYPE_FP4_E2M1), code);
}
static float value_of(const hc_format *format, const hc_loaded *of, uint32_t code) {
    return hc_scaled_element(number_of(format, of, code), of->scale);
}
static double exact_of(const hc_format *format, const hc_loaded *of, uint32_t code) {
    return (double)of->scale * (double)number_of(format, of, code);
}
static int32_t integer_of(const hc_format *format, const hc_loaded *of, uint32_t code, hc_int_mode mode) {
    (void)format, (void)of, (void)mode;
    return hc_e2_integer((uint8_t)code, NVFP4_FRACTION_BITS) - hc_e2_zero(NVFP4_FRACTION_BITS);
}

/* Patterns have no integer form: their matmuls are computed in floats, which skip zeros. */
static void nvfp4_int_form(const hc_format *format, hc_int_mode mode, hc_int_form *form) {
    *form = (hc_int_form){.available = mode == HC_INT_GROUPED && format->m == 0,
                          .n_limbs = 1,
                          .max_abs = hc_e2_zero(NVFP4_FRACTION_BITS),
                          .fraction_bits = NVFP4_FRACTION_BITS};
}

#define HC_DECODED nvfp4
#define HC_DECODED_BITS NVFP4_BITS
#define HC_DECODED_INTEGERS
#include "formats/decoders.h"

static double level_of(const hc_format *format, uint32_t code) {
    (void)format;
    return (double)hc_float_decode(hc_float_type_of(HC_TYPE_FP4_E2M1), code);
}

static void nvfp4_stored_form(const hc_format *format, hc_stored_form *form) {
    *form = (hc_stored_form){.level = level_of, .scale = HC_SCALE_E4M3, .second = HC_SECOND_SCALE, .is_shared = true};
    hc_float_store_form(hc_float_type_of(HC_TYPE_FP4_E2M1), form);
    form->e2_bits = NVFP4_FRACTION_BITS;
    hc_form_fill_table(format, form);
}

HC_FORMAT_OPS(nvfp4, "NVFP4: 4-bit floats, an 8-bit float scale for every 16 values, a float32 for the array",
              .passes = nvfp4_passes, .observe = nvfp4_observe, .finish = nvfp4_finish, .encode = nvfp4_encode,
              .int_form = nvfp4_int_form, .decode_int = nvfp4_decode_int);
