/* Microscaling floats: OCP Microscaling Formats (MX) v1.0, sections 5 and 6. Groups of 32, with a power of two X per
 * group.
 *
 *   byte = e + 127, X = 2^e, element = RNE(x / X), saturating, value = element * X;  int8: q = clip(RNE(64 x / X))
 *   floor   e = floor(log2 absmax) - emax      ceil   e = ceil(log2 absmax) - emax
 *   rceil   the smallest e with absmax <= largest * 2^e
 *   even    absmax's fraction rounded to the element's bits, half up; then floor
 *   ggml    e = floor(float32(log2 absmax)) - emax; a tie goes to the smaller magnitude, and -0 is 0 (e2m1 only)
 *
 * emax: the exponent of the element's largest value. e is clamped to -127 .. 127. A group of zeros has byte 0; one with
 * a NaN or an infinity has byte 0xff, codes 0, and is NaN. option[0]: the element, option[1]: the rule.
 */
#include "formats/mx/mx.h"
#include "formats/levels.h"

static hc_status mx_check(const hc_format *format, hc_error *error) {
    if (mx_element(format) < MX_FIRST_ELEMENT || mx_element(format) > MX_INT8)
        return hc_fail(error, HC_VALUE, "format: mx has no element %d, expected %d to %d", mx_element(format),
                       MX_FIRST_ELEMENT, MX_INT8);
    if (format->bits != mx_element_bits(format))
        return hc_fail(error, HC_VALUE, "format: this mx element has %d bits, not %d", mx_element_bits(format),
                       (int)format->bits);
    if (format->group != MX_GROUP)
        return hc_fail(error, HC_VALUE, "format: mx has group %d, expected %d", (int)format->group, MX_GROUP);
    if (mx_rule(format) < 0 || mx_rule(format) >= MX_N_RULES)
        return hc_fail(error, HC_VALUE, "format: mx has no scale rule %d, expected 0 to %d", mx_rule(format),
                       MX_N_RULES - 1);
    if (mx_rule(format) == MX_GGML && mx_element(format) != HC_TYPE_FP4_E2M1)
        return hc_fail(error, HC_VALUE, "format: mx has the rounding of ggml for e2m1, not for element %d",
                       mx_element(format));
    return HC_OK;
}

static void mx_layout(const hc_format *format, const hc_geometry *geometry,
                      hc_component_layout layout[HC_N_COMPONENTS]) {
    layout[HC_CODES] = (hc_component_layout){true, true, HC_U8, 1, {hc_row_bytes(geometry->padded, format->bits), 0}};
    layout[HC_SCALES] = (hc_component_layout){true, true, HC_U8, 1, {geometry->groups, 0}};
}

static bool mx_legal(const hc_format *format, double value) {
    (void)format;
    return !(fabs(value) >= 0x1p128) || isinf(value);
}

/* Whether float32(log2 absmax) rounds up to the integer k, for absmax = 2^k - below * 2^(k - 24) and 2^j <= |k|.
 *
 *   log2 absmax = k - below * 2^-24 / ln 2   (first order)
 *   half the distance of float32 numbers at k = 2^(j - 24), below a power of two 2^(j - 25) */
static bool rounds_up(int k, uint64_t below) {
    static const uint8_t most[] = {0, 1, 2, 5, 11, 22, 44, 88}; /* 2^j ln 2 */
    int j = 0;
    for (int magnitude = k < 0 ? -k : k; magnitude > 1; magnitude >>= 1)
        j++;
    if (k > 0 && k == 1 << j)
        j--;
    return k != 0 && j >= 0 && below <= (uint64_t)most[j] << 29;
}

/* The byte of a group from the bits of its largest magnitude, which is finite. Below 2^-1022 any exponent field is
 * correct, since the result is clamped. */
static uint8_t scale_byte(const hc_format *format, double absmax) {
    const uint64_t fraction = ((uint64_t)1 << 52) - 1, largest = hc_f64_bits((double)mx_largest(format));
    uint64_t bits = hc_f64_bits(absmax);
    if (bits == 0)
        return 0;
    if (mx_rule(format) == MX_EVEN)
        bits += (uint64_t)1 << (52 - mx_fraction_bits(format) - 1);
    int exponent = (int)(bits >> 52) - (int)(largest >> 52);
    if (mx_rule(format) == MX_CEIL)
        exponent += (bits & fraction) != 0;
    if (mx_rule(format) == MX_RCEIL)
        exponent += (bits & fraction) > (largest & fraction);
    if (mx_rule(format) == MX_GGML)
        exponent += rounds_up((int)(bits >> 52) - 1022, fraction + 1 - (bits & fraction));
    return (uint8_t)(hc_max(hc_min(exponent, 127), -127) + 127);
}

/* The type of the elements; of MX_INT8, another one. */
static hc_float_type type_of(const hc_format *format) {
    return *hc_float_type_of(mx_element(format) == MX_INT8 ? MX_FIRST_ELEMENT : mx_element(format));
}

/* The nearest code of e2m1; of two, that of the smaller magnitude. A narrower quotient rounds only below 2^-126. */
static inline uint32_t encode_as_ggml(float quotient) {
    const float magnitude = fabsf(quotient);
    const int code = (magnitude > 0.25f) + (magnitude > 0.75f) + (magnitude > 1.25f) + (magnitude > 1.75f) +
                     (magnitude > 2.5f) + (magnitude > 3.5f) + (magnitude > 5.0f);
    return (uint32_t)(code | (((quotient < 0) & (code > 0)) << 3));
}

/* The codes of a group; loops without branches, which compilers turn into vectors. On a device a thread has no vectors:
 * its values go the way of each element, in less code. */
#ifdef __CUDACC__
enum { GGML_BY_GROUPS = 0 };
#else
enum { GGML_BY_GROUPS = 1 };
#endif
static void write_as_ggml(const float *x, float inverse, bool finite, hc_bit_writer *codes) {
    uint32_t found[MX_GROUP];
    for (int c = 0; c < MX_GROUP; c++)
        found[c] = encode_as_ggml(x[c] * inverse);
    for (int c = 0; c < MX_GROUP; c++)
        hc_write_bits(codes, finite ? found[c] : 0, 4);
}

static uint32_t encode_element(const hc_format *format, const hc_float_type *type, double quotient) {
    if (mx_rule(format) == MX_GGML)
        return encode_as_ggml((float)quotient); /* values are float32 at most: the quotient is exact */
    if (mx_element(format) == MX_INT8)
        return (uint32_t)hc_quotient(64 * quotient, 1, -127, 127);
    return hc_float_encode(type, quotient, true);
}

/* The largest magnitude of columns [first, first + n); clears *finite if a value is not, *legal if one is invalid. */
static double group_maximum(const hc_format *format, const hc_float_rows *x, int64_t i, int64_t first, int64_t n,
                            bool *legal, bool *finite) {
    if (x->dtype == HC_F32) /* all legal */
        return (double)hc_group_absmax(x, i, first, n, finite);
    double absmax = 0;
    for (int64_t c = first; c < first + n; c++) {
        const double magnitude = fabs(hc_row_value(x, i, c));
        *legal = *legal && mx_legal(format, magnitude);
        *finite = *finite && magnitude < 0x1p128;
        absmax = magnitude > absmax ? magnitude : absmax;
    }
    return absmax;
}

static int64_t mx_encode(const hc_format *format, const hc_geometry *geometry, const hc_encode_state *state,
                         const hc_float_rows *x, const float *thresholds, const hc_components *out) {
    (void)state, (void)thresholds;
    const hc_float_type type = type_of(format);
    int64_t illegal = HC_DONE;
    for (int64_t i = 0; i < x->rows; i++) {
        const int64_t row = x->first_row + i;
        hc_bit_writer codes = {hc_part(out, HC_CODES, row), 0, 0};
        uint8_t *scales = hc_part(out, HC_SCALES, row);
        bool legal = true;
        for (int64_t group = 0; group < geometry->groups; group++) {
            const int64_t first = group * geometry->group;
            bool finite = true;
            const double absmax = group_maximum(format, x, i, first, geometry->group, &legal, &finite);
            scales[group] = finite ? scale_byte(format, absmax) : MX_NAN_BYTE;
            const double inverse = 1 / (double)mx_scale(scales[group]); /* a power of two: products are quotients */
            if (GGML_BY_GROUPS && x->dtype == HC_F32 && mx_rule(format) == MX_GGML && geometry->group == MX_GROUP) {
                write_as_ggml((const float *)x->data + i * x->row_stride + first, (float)inverse, finite, &codes);
                continue;
            }
            if (x->dtype == HC_F32 && mx_element(format) != MX_INT8 && mx_rule(format) != MX_GGML) {
                /* products below 2^-126, which float32 rounds, get the code 0 */
                const float *from = (const float *)x->data + i * x->row_stride + first;
                const uint32_t kept = finite ? UINT32_MAX : 0;
                for (int64_t c = 0; c < geometry->group; c++)
                    hc_write_bits(&codes, kept & hc_float_encode_f32(&type, from[c] * (float)inverse), format->bits);
                continue;
            }
            for (int64_t c = first; c < first + geometry->group; c++)
                hc_write_bits(&codes, finite ? encode_element(format, &type, hc_row_value(x, i, c) * inverse) : 0,
                              format->bits);
        }
        hc_flush_bits(&codes);
        if (!legal && illegal == HC_DONE)
            illegal = row;
    }
    return illegal;
}

/* The scale of a group, and the type of its elements unless they are integers. */
typedef struct {
    float scale;
    hc_float_type type;
} hc_loaded;

static hc_loaded load_group(const hc_format *format, const hc_geometry *geometry, const hc_components *components,
                            int64_t row, int64_t group) {
    (void)geometry;
    const uint8_t *scales = hc_part(components, HC_SCALES, row);
    return (hc_loaded){mx_scale(scales[group]), type_of(format)};
}
static float number_of(const hc_format *format, const hc_loaded *of, uint32_t code) {
    return mx_element(format) == MX_INT8 ? (float)hc_sign_extend(code, 8) / 64 : hc_float_decode(&of->type, code);
}
static float value_of(const hc_format *format, const hc_loaded *of, uint32_t code) {
    return hc_scaled_element(number_of(format, of, code), of->scale);
}
static double exact_of(const hc_format *format, const hc_loaded *of, uint32_t code) {
    return (double)of->scale * (double)number_of(format, of, code);
}
static int32_t integer_of(const hc_format *format, const hc_loaded *of, uint32_t code, hc_int_mode mode) {
    (void)of, (void)mode;
    const int bits = mx_fraction_bits(format);
    return mx_is_e2(format) ? hc_e2_integer((uint8_t)code, bits) - hc_e2_zero(bits) : (int8_t)code;
}

/* Patterns have no integer form: their matmuls are computed in floats, which skip zeros. */
static void mx_int_form(const hc_format *format, hc_int_mode mode, hc_int_form *form) {
    const int bits = mx_fraction_bits(format);
    *form = (hc_int_form){.available = mode == HC_INT_GROUPED && mx_has_integers(format) && format->m == 0,
                          .n_limbs = 1,
                          .max_abs = mx_element(format) == MX_INT8 ? 127 : hc_e2_zero(bits),
                          .fraction_bits = bits};
}

#define HC_DECODED mx
#define HC_DECODED_INTEGERS
#include "formats/decoders.h"

static double level_of(const hc_format *format, uint32_t code) {
    return (double)hc_float_decode(hc_float_type_of(mx_element(format)), code);
}

static void mx_stored_form(const hc_format *format, hc_stored_form *form) {
    if (mx_element(format) == MX_INT8) {
        *form = (hc_stored_form){.bits = format->bits,
                                 .codes = HC_CODES_INTEGER,
                                 .is_signed = true,
                                 .fraction_bits = mx_fraction_bits(format),
                                 .lowest = -127,
                                 .largest = 127,
                                 .scale = HC_SCALE_E8M0};
        return;
    }
    *form = (hc_stored_form){.level = level_of, .scale = HC_SCALE_E8M0};
    hc_float_store_form(hc_float_type_of(mx_element(format)), form);
    form->e2_bits = mx_is_e2(format) ? mx_fraction_bits(format) : 0;
    hc_form_fill_table(format, form);
}

HC_FORMAT_OPS(mx, "microscaling: floats of 4 to 8 bits or int8, a power of two for every 32 values", .legal = mx_legal,
              .encode = mx_encode, .int_form = mx_int_form, .decode_int = mx_decode_int);
