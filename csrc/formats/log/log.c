/* Log numbers: a sign and an exponent in steps of 1 / gamma octave, with one scale per row (group 0) or per group.
 * Miyashita et al. 2016 (arXiv 1603.01025); a base for each gamma as in LNS-Madam, Zhao et al. 2021 (2106.13914).
 *
 *   value = float32(sign * (s * T_e)), T_e = 2^(-e / gamma), s = absmax     code = sign << (b-1) | e, e = 0 .. 2^(b-1) - 2
 *   e = the first with |x| / s >= 2^(-(e + 1/2) / gamma); the largest e code is zero: below half the smallest T_e
 *
 * option[0]: gamma, a power of two up to 32, so that one table of 2^(-i/64) contains every fraction; octaves are exact.
 */
#include "formats/log/log.h"
#include "formats/levels.h"

static hc_status log_check(const hc_format *format, hc_error *error) {
    const int gamma = log_gamma_of(format);
    if (format->bits < 2 || format->bits > 8)
        return hc_fail(error, HC_VALUE, "format: log has %d bits, expected 2 to 8", (int)format->bits);
    if (gamma < 1 || gamma > LOG_MAX_GAMMA || (gamma & (gamma - 1)) != 0)
        return hc_fail(error, HC_VALUE, "format: log has gamma %d, expected 1, 2, 4, 8, 16 or 32", gamma);
    if (format->group < 0)
        return hc_fail(error, HC_VALUE, "format: log has group %d, expected at least 1, or 0 for one a row",
                       (int)format->group);
    return HC_OK;
}

static void log_layout(const hc_format *format, const hc_geometry *geometry,
                       hc_component_layout layout[HC_N_COMPONENTS]) {
    layout[HC_CODES] = (hc_component_layout){true, true, HC_U8, 1, {hc_row_bytes(geometry->padded, format->bits), 0}};
    layout[HC_SCALES] = (hc_component_layout){true, true, HC_F32, 1, {geometry->groups, 0}};
}

static hc_clip_domain log_clip_domain(const hc_format *format) {
    (void)format;
    return HC_CLIP_ABSOLUTE;
}

/* The exponent of a quotient that is at least half the smallest magnitude. */
static int32_t exponent_of(int gamma, double quotient) {
    if (quotient >= 1)
        return 0;
    uint64_t bits;
    memcpy(&bits, &quotient, sizeof bits);
    const int32_t octaves = 1022 - (int32_t)(bits >> 52); /* quotient = rest * 2^-octaves, rest in [1/2, 1) */
    bits = (bits & ((1ull << 52) - 1)) | 1022ull << 52;
    double rest;
    memcpy(&rest, &bits, sizeof rest);
    int32_t e = octaves * gamma, step = LOG_STEPS / gamma;
    for (int i = step / 2; i < LOG_STEPS; i += step) /* thresholds 2^(-(r + 1/2) / gamma) */
        e += rest < LOG_POWER[i];
    return e;
}

/* The code of a value; NaN becomes zero. */
static uint32_t encode_value(const hc_format *format, double x, double scale, double smallest) {
    const uint32_t sign = signbit(x) ? 1u << (format->bits - 1) : 0;
    const double quotient = fabs(x) / scale;
    if (!(quotient >= smallest / 2))
        return sign | (uint32_t)log_zero_code(format);
    const int32_t e = exponent_of(log_gamma_of(format), quotient), last = log_zero_code(format) - 1;
    return sign | (uint32_t)(e < last ? e : last);
}

static bool encode_group(const hc_format *format, const hc_float_rows *x, int64_t i, int64_t first, int64_t n,
                         const float *threshold, uint8_t *scale_place, hc_bit_writer *codes) {
    bool legal = true;
    const float absmax = hc_group_absmax(x, i, first, n, &legal), scale = threshold ? *threshold : absmax;
    const double smallest = log_magnitude(log_gamma_of(format), log_zero_code(format) - 1);
    hc_store_f32(scale_place, scale);
    for (int64_t c = first; c < first + n; c++)
        hc_write_bits(codes, scale == 0 ? 0 : encode_value(format, hc_row_value(x, i, c), (double)scale, smallest),
                      format->bits);
    return legal;
}

static int64_t log_encode(const hc_format *format, const hc_geometry *geometry, const hc_encode_state *state,
                          const hc_float_rows *x, const float *thresholds, const hc_components *out) {
    (void)state;
    int64_t illegal = HC_DONE;
    for (int64_t i = 0; i < x->rows; i++) {
        const int64_t row = x->first_row + i;
        hc_bit_writer codes = {hc_part(out, HC_CODES, row), 0, 0};
        uint8_t *scales = hc_part(out, HC_SCALES, row);
        for (int64_t group = 0; group < geometry->groups; group++) {
            const float *threshold = thresholds ? thresholds + i * geometry->groups + group : NULL;
            if (!encode_group(format, x, i, group * geometry->group, geometry->group, threshold, scales + group * 4,
                              &codes) &&
                illegal == HC_DONE)
                illegal = row;
        }
        hc_flush_bits(&codes);
    }
    return illegal;
}

/* sign * T_e, a signed zero for the code of zero. */
static double level_of(const hc_format *format, uint32_t code) {
    const int32_t zero = log_zero_code(format), e = (int32_t)code & zero;
    const double magnitude = e == zero ? 0 : log_magnitude(log_gamma_of(format), e);
    return (int32_t)code > zero ? -magnitude : magnitude;
}

/* The scale of a group. */
typedef struct {
    float scale;
} hc_loaded;

static hc_loaded load_group(const hc_format *format, const hc_geometry *geometry, const hc_components *components,
                            int64_t row, int64_t group) {
    (void)format, (void)geometry;
    return (hc_loaded){hc_load_f32((const uint8_t *)hc_part(components, HC_SCALES, row) + group * 4)};
}
static float number_of(const hc_format *format, const hc_loaded *of, uint32_t code) {
    return (void)of, (float)level_of(format, code);
}
static double exact_of(const hc_format *format, const hc_loaded *of, uint32_t code) {
    return (double)of->scale * level_of(format, code);
}
static float value_of(const hc_format *format, const hc_loaded *of, uint32_t code) {
    return hc_saturated(exact_of(format, of, code));
}

#define HC_DECODED log
#define HC_DECODED_GROUPS (format->group != 0)
#include "formats/decoders.h"

static void log_stored_form(const hc_format *format, hc_stored_form *form) {
    *form = (hc_stored_form){.bits = format->bits,
                             .codes = HC_CODES_LOG,
                             .level = level_of,
                             .steps = log_gamma_of(format),
                             .scale = HC_SCALE_F32};
    hc_form_fill_table(format, form);
}

HC_FORMAT_OPS(log, "log numbers: sign and exponent in steps of 1/gamma octave, one code for zero", .encode = log_encode,
              .clip_domain = log_clip_domain);
