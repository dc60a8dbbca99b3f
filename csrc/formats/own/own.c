/* Formats that a sentence defines (base/sentence.h). S is the scale of a group, a row, a block or the array:
 *
 *   limit = absmax, threshold of clip=, or float32(mean of |x|)     S = limit / target, rounded to the type of the scale
 *   code = nearest element to float64(x) / float64(S), 0 where S is 0            value = float32(level of the code * S)
 *
 * Two levels of floats: p = maximum / (target * largest scale) or 1, S = float32(byte * p), byte = (limit / target) / p.
 * Of integers: s = limit / target, gamma = largest s / (2^M - 1), s_q = RNE(s / gamma), S = gamma s_q, codes are made
 * with s. e8m0: as mx.c. Divisions of scales are float32. A mean is a float64 sum by ascending column of each group,
 * then of groups by ascending row, divided by the number of values without padding.
 */
#include "formats/own/own.h"
#include "formats/own/scales.h"

static inline double maximum_of(const hc_sentence *own, const hc_float_rows *x, int64_t i, int64_t first, int64_t n,
                                bool *legal) {
    return defined_maximum(own, x, i, first, n, legal);
}

static inline double sum_of(const hc_float_rows *x, int64_t i, int64_t first, int64_t n, bool *legal) {
    return defined_sum(x, i, first, n, legal);
}

static hc_status own_check(const hc_format *format, hc_error *error) {
    const hc_sentence *own = hc_sentence_of(format);
    if (!own)
        return hc_fail(error, HC_VALUE, "format: own has no record %d", own_number(format));
    if (format->bits != own->bits)
        return hc_fail(error, HC_VALUE, "format: this own format has %d bits, not %d", (int)own->bits,
                       (int)format->bits);
    if (own_has_groups(own) ? format->group < 1 : format->group != 0)
        return hc_fail(error, HC_VALUE, "format: own has group %d, expected %s", (int)format->group,
                       own_has_groups(own) ? "at least 1" : "0");
    return HC_OK;
}

static void own_layout(const hc_format *format, const hc_geometry *geometry,
                       hc_component_layout layout[HC_N_COMPONENTS]) {
    const hc_sentence *own = hc_sentence_of(format);
    layout[HC_CODES] = (hc_component_layout){true, true, HC_U8, 1, {hc_row_bytes(geometry->padded, own->bits), 0}};
    if (own->sharing == OWN_TENSOR)
        layout[HC_COARSE] = (hc_component_layout){true, false, HC_F32, 0, {0, 0}};
    if (own->sharing == OWN_TENSOR || own->sharing == OWN_UNSCALED)
        return;
    static const hc_dtype dtypes[OWN_N_SCALES] = {HC_F32, HC_F16, HC_BF16, HC_U8, HC_U8, HC_U8};
    const int64_t n = own->scale == OWN_INTEGER ? hc_row_bytes(geometry->groups, own->scale_bits) : geometry->groups;
    layout[HC_SCALES] = (hc_component_layout){true, true, dtypes[own->scale], 1, {n, 0}};
    if (own->sharing == OWN_BLOCK)
        layout[HC_SCALES] = (hc_component_layout){
            true, false, dtypes[own->scale], 2, {hc_ceil_div(geometry->rows, own->block_rows), n}};
    if (own->second != OWN_ONE_LEVEL)
        layout[HC_COARSE] = (hc_component_layout){true, own->second == OWN_SECOND_ROW, HC_F32, 0, {0, 0}};
}

static bool own_groups(const hc_format *format) { return own_has_groups(hc_sentence_of(format)); }

static hc_clip_domain own_clip_domain(const hc_format *format) {
    const hc_sentence *own = hc_sentence_of(format);
    if (own->sharing == OWN_UNSCALED || own->sharing == OWN_BLOCK || own->scale == OWN_E8M0 || own_is_absmean(own) ||
        (own->second == OWN_SECOND_TENSOR && own->scale != OWN_INTEGER))
        return HC_CLIP_NONE;
    if (own->sharing == OWN_TENSOR)
        return own->is_signed ? HC_CLIP_WHOLE : HC_CLIP_POSITIVE;
    return own->is_signed ? HC_CLIP_ABSOLUTE : HC_CLIP_POSITIVE;
}

static bool own_legal(const hc_format *format, double value) { return legal_value(hc_sentence_of(format), value); }

static int own_passes(const hc_format *format) {
    const hc_sentence *own = hc_sentence_of(format);
    return own->sharing == OWN_TENSOR || own->sharing == OWN_BLOCK || own->second == OWN_SECOND_TENSOR;
}

/* One float64 per group of each row: its largest magnitude or its sum. `finish` reduces them per block, or over the array, and
 * stores the results over those of the first rows. */
static int64_t own_shared(const hc_format *format, const hc_geometry *geometry) {
    return shared_count(hc_sentence_of(format), geometry);
}

static int64_t own_observe(const hc_format *format, const hc_geometry *geometry, int pass, const hc_float_rows *x,
                           const float *thresholds, hc_encode_state *state) {
    (void)pass;
    return observe_limits(hc_sentence_of(format), geometry, x, thresholds, state);
}

/* Joins the groups of the rows of a block: of the largest magnitudes the largest, of sums the mean. */
static void join_blocks(const hc_sentence *own, hc_encode_state *state) {
    const hc_geometry *geometry = state->geometry;
    for (int64_t first = 0; first < geometry->rows; first += own->block_rows) {
        const int64_t last = hc_min(geometry->rows, first + own->block_rows);
        for (int64_t group = 0; group < geometry->groups; group++) {
            double joined = load_shared(state, first * geometry->groups + group);
            for (int64_t row = first + 1; row < last; row++) {
                const double next = load_shared(state, row * geometry->groups + group);
                joined = own_is_absmean(own) ? joined + next : isnan(next) || next > joined ? next : joined;
            }
            if (own_is_absmean(own))
                joined = (double)mean_of(joined, (last - first) * count_of(geometry, group));
            if (!isnan(joined))
                state->maximum = fmaxf(state->maximum, (float)joined);
            store_shared(state, first / own->block_rows * geometry->groups + group, joined);
        }
    }
}

static void own_finish(const hc_format *format, int pass, hc_encode_state *state) {
    (void)pass;
    const hc_sentence *own = hc_sentence_of(format);
    if (own->sharing == OWN_BLOCK)
        join_blocks(own, state);
    if (own->sharing == OWN_TENSOR && own_is_absmean(own)) {
        const int64_t rows = state->geometry->rows;
        double sum = 0;
        for (int64_t i = 0; i < rows * state->geometry->groups; i++)
            sum += load_shared(state, i);
        state->maximum = mean_of(sum, rows * state->geometry->columns);
    }
    state->coarse = own->sharing == OWN_TENSOR ? saturated_quotient(state->maximum, (float)own->target)
                                               : second_scale(own, state->maximum);
}

static void own_share(const hc_format *format, const hc_geometry *geometry, const hc_encode_state *state,
                      const hc_components *out) {
    const hc_sentence *own = hc_sentence_of(format);
    if (own->sharing == OWN_TENSOR || own->second == OWN_SECOND_TENSOR)
        hc_store_f32(hc_part(out, HC_COARSE, 0), state->coarse);
    if (own->sharing != OWN_BLOCK)
        return;
    const float p = own->second == OWN_SECOND_TENSOR ? state->coarse : 1.0f;
    const int64_t n = hc_ceil_div(geometry->rows, own->block_rows) * geometry->groups;
    for (int64_t i = 0; i < n; i++)
        store_scale(own, load_shared(state, i), p, hc_part(out, HC_SCALES, 0), i);
}

static int64_t own_encode(const hc_format *format, const hc_geometry *geometry, const hc_encode_state *state,
                          const hc_float_rows *x, const float *thresholds, const hc_components *out) {
    const hc_sentence *own = hc_sentence_of(format);
    const bool is_scaled = own->sharing != OWN_UNSCALED;
    int64_t illegal = HC_DONE;
    for (int64_t i = 0; i < x->rows; i++) {
        const int64_t row = x->first_row + i;
        hc_bit_writer codes = {hc_part(out, HC_CODES, row), 0, 0}, integers = {NULL, 0, 0};
        integers.next = hc_part(out, HC_SCALES, row);
        bool legal = true;
        const float second = is_scaled ? row_second(own, geometry, state, x, i, thresholds) : 1.0f;
        if (own->second == OWN_SECOND_ROW)
            hc_store_f32(hc_part(out, HC_COARSE, row), second);
        for (int64_t group = 0; group < geometry->groups; group++) {
            const int64_t first = group * geometry->group;
            const double scale =
                encode_scale(own, geometry, state, x, i, group, thresholds, second, &integers, &legal, out);
            for (int64_t c = first; c < first + geometry->group; c++) {
                const double value = hc_row_value(x, i, c);
                legal = legal && legal_value(own, value);
                const uint32_t code = scale == 0 || isnan(scale) ? 0 : own_encode_element(own, value / scale);
                hc_write_bits(&codes, code, own->bits);
            }
        }
        hc_flush_bits(&codes);
        if (is_scaled && own->scale == OWN_INTEGER)
            hc_flush_bits(&integers);
        if (!legal && illegal == HC_DONE)
            illegal = row;
    }
    return illegal;
}

/* The scale of a group, gamma, which multiplies integer scales, otherwise 1, and what is added to a product: -0, which
 * changes nothing, or +0, which makes a -0 a +0. */
typedef struct {
    float scale, gamma, zero;
    const hc_sentence *own;
} hc_loaded;

static float second_of(const hc_format *format, const hc_components *components, int64_t row) {
    return load_gamma(hc_sentence_of(format), components, row);
}
static hc_loaded load_group(const hc_format *format, const hc_geometry *geometry, const hc_components *components,
                            int64_t row, int64_t group) {
    const hc_sentence *own = hc_sentence_of(format);
    const float zero = own->minus_zero >= 0 || !own->ranks ? -0.0f : 0.0f; /* only elements with a -0 have a -0 */
    return (hc_loaded){load_factor(own, geometry, components, row, group), load_gamma(own, components, row), zero, own};
}
static float whole_scale_of(const hc_format *format, const hc_loaded *of) {
    return (void)format, hc_saturated((double)of->gamma * (double)of->scale);
}
static float number_of(const hc_format *format, const hc_loaded *of, uint32_t code) {
    return (void)format, (float)own_level(of->own, code);
}
static double product_of(const hc_loaded *of, double level) { return (double)of->gamma * ((double)of->scale * level); }
static double exact_of(const hc_format *format, const hc_loaded *of, uint32_t code) {
    return (void)format, product_of(of, own_level(of->own, code)) + (double)of->zero;
}
/* Infinite elements stay infinite. */
static float value_of(const hc_format *format, const hc_loaded *of, uint32_t code) {
    (void)format;
    const double level = own_level(of->own, code), exact = product_of(of, level);
    return (isinf(level) ? (float)exact : hc_saturated(exact)) + of->zero;
}
/* The level of a code times 2^whole; folded, times the integer of its scale. */
static int32_t integer_of(const hc_format *format, const hc_loaded *of, uint32_t code, hc_int_mode mode) {
    (void)format;
    const hc_sentence *own = of->own;
    const int32_t times = own->scale == OWN_INTEGER && mode == HC_INT_FOLDED ? (int32_t)of->scale : 1;
    if (own->codes == HC_CODES_INTEGER)
        return times * (own->is_signed ? hc_sign_extend(code, own->bits) : (int32_t)code);
    return times * (int32_t)ldexp(own->level[code], own->whole);
}

static void own_int_form(const hc_format *format, hc_int_mode mode, hc_int_form *form) {
    const hc_sentence *own = hc_sentence_of(format);
    const bool is_folded = !own_has_groups(own) || own->scale == OWN_INTEGER;
    const bool is_integer = own->codes == HC_CODES_INTEGER || (own->whole >= 0 && format->m == 0);
    const int32_t level = own->whole >= 0 ? (int32_t)ldexp(own->most, own->whole) : 0;
    const int32_t most = own->codes == HC_CODES_INTEGER ? (int32_t)hc_max(own->largest, -own->lowest) : level;
    const bool is_multiplied = own->scale == OWN_INTEGER && mode == HC_INT_FOLDED;
    *form = (hc_int_form){.available = own->sharing != OWN_UNSCALED && is_integer &&
                                       (mode == HC_INT_GROUPED || (mode == HC_INT_FOLDED && is_folded) ||
                                        (mode == HC_INT_SPLIT && own->scale == OWN_INTEGER)),
                          .max_abs = is_multiplied ? most * ((1 << own->scale_bits) - 1) : most,
                          .fraction_bits = own->codes == HC_CODES_INTEGER ? own->places : own->whole};
    form->n_limbs = hc_limbs_for(form->max_abs);
}

#define HC_DECODED own
#define HC_DECODED_GROUPS (format->group != 0)
#define HC_DECODED_INTEGERS
#define HC_DECODED_SECOND
#include "formats/decoders.h"

static double level_of(const hc_format *format, uint32_t code) { return own_level(hc_sentence_of(format), code); }

static hc_scale_kind scale_kind(const hc_sentence *own) {
    static const hc_scale_kind kinds[OWN_N_SCALES] = {HC_SCALE_F32,  HC_SCALE_F16, HC_SCALE_OWN,
                                                      HC_SCALE_E8M0, HC_SCALE_OWN, HC_SCALE_INTEGER};
    const hc_float_type *e4m3 = hc_float_type_of(HC_TYPE_FP8_E4M3FN), type = own_type(&own->scale_type);
    if (own->sharing == OWN_UNSCALED || own->sharing == OWN_TENSOR)
        return HC_SCALE_NONE;
    if (own->sharing == OWN_BLOCK)
        return HC_SCALE_OWN;
    if (own->scale == OWN_FLOAT && own->second == OWN_SECOND_TENSOR && memcmp(&type, e4m3, sizeof *e4m3) == 0)
        return HC_SCALE_E4M3;
    return kinds[own->scale];
}

static void own_stored_form(const hc_format *format, hc_stored_form *form) {
    const hc_sentence *own = hc_sentence_of(format);
    const hc_scale_kind scale = scale_kind(own);
    *form = (hc_stored_form){.bits = own->bits,
                             .codes = (hc_code_kind)own->codes,
                             .scale = scale,
                             .scale_bits = scale == HC_SCALE_INTEGER ? own->scale_bits : 0,
                             .row_scales = scale == HC_SCALE_OWN ? own_row_scales : NULL,
                             .second = own->sharing == OWN_TENSOR || own->scale == OWN_INTEGER ? HC_SECOND_ROW
                                       : scale == HC_SCALE_E4M3                                ? HC_SECOND_SCALE
                                                                                               : HC_SECOND_NONE,
                             .is_shared = own->sharing == OWN_TENSOR || own->second == OWN_SECOND_TENSOR};
    /* the kernels of few vectors know places after the point for 8 bits with a sign and groups alone */
    const bool is_known = own->bits == 8 && own->is_signed && own_has_groups(own);
    const bool has_places = own->places > 0 && own->ranks > 0 && !is_known;
    if (own->codes == HC_CODES_INTEGER && !has_places) {
        form->is_signed = own->is_signed != 0;
        form->is_nearest = own->sharing == OWN_ROW && own->scale == OWN_F32 && own->rule == OWN_ABSMAX &&
                           own->is_signed && own->places == 0 && own->target == own->largest;
        form->fraction_bits = own->places;
        form->lowest = own->lowest;
        form->largest = own->largest;
        return;
    }
    const float maximum = own->most < (double)FLT_MAX ? (float)own->most : FLT_MAX;
    form->level = own->ranks ? level_of : NULL;
    form->codes = own->codes == HC_CODES_INTEGER ? HC_CODES_TABLE : form->codes;
    form->steps = own->codes == HC_CODES_LOG ? own->places : 0;
    if (own->codes == HC_CODES_FLOAT) {
        const hc_float_type type = own_type(&own->type);
        hc_float_store_form(&type, form);
        form->bits = own->bits;
        const bool is_e2 = own->is_signed && own->bits == own->places + 3 && type.bias == 1 && own->nan < 0;
        form->e2_bits = is_e2 && (own->places == 1 || own->places == 3) ? own->places : 0;
        if (!own->is_plain) { /* read as a table */
            form->codes = HC_CODES_TABLE;
            form->lift = form->exponent_bits = form->special_bits = form->precision = form->smallest = 0;
        }
    }
    form->maximum = maximum;
    hc_form_fill_table(format, form);
}

HC_FORMAT_OPS(own, "formats that a sentence defines: element, scale, rule and sharing", .has_groups = own_groups,
              .passes = own_passes, .observe = own_observe, .finish = own_finish, .shared = own_shared,
              .share = own_share, .legal = own_legal, .encode = own_encode, .int_form = own_int_form, .splits = true,
              .decode_int = own_decode_int, .clip_domain = own_clip_domain);
