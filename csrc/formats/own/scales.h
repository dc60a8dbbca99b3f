/* Values and scales of formats that sentences define: which values are legal, the scale that a limit gives, and the scale
 * that is stored. formats/own/own.c has the arithmetic; its kernels use the same functions.
 */
#ifndef HC_OWN_SCALES_H
#define HC_OWN_SCALES_H

#include "formats/levels.h"
#include "formats/own/record.h"

/* True if a value can be encoded. */
static inline bool legal_value(const hc_sentence *own, double value) {
    if (own->scale == OWN_E8M0 && own->sharing != OWN_UNSCALED)
        return !(fabs(value) >= 0x1p128) || isinf(value);
    if (own->sharing != OWN_UNSCALED)
        return hc_is_legal(value);
    if (isnan(value))
        return own->nan >= 0;
    return !isinf(value) || own->saturates || own->nan >= 0;
}

/* The largest magnitude of columns [first, first + n), or largest value of an element without a sign; NaN if a value is
 * invalid, which clears *legal, or, of e8m0, not finite, which does not. */
static inline double defined_maximum(const hc_sentence *own, const hc_float_rows *x, int64_t i, int64_t first,
                                     int64_t n, bool *legal) {
    if (x->dtype == HC_F32 && own->is_signed && own->scale != OWN_E8M0)
        return (double)hc_group_absmax(x, i, first, n, legal);
    double maximum = 0;
    bool finite = true, all_legal = true;
    for (int64_t c = first; c < first + n; c++) {
        const double value = hc_row_value(x, i, c), magnitude = own->is_signed ? fabs(value) : value;
        const bool is_number = own->scale == OWN_E8M0 ? fabs(value) < 0x1p128 : hc_is_legal(value);
        finite = finite && is_number;
        all_legal = all_legal && (is_number || (own->scale == OWN_E8M0 && !(fabs(value) <= DBL_MAX)));
        maximum = magnitude > maximum ? magnitude : maximum;
    }
    *legal = *legal && all_legal;
    return !finite ? (double)NAN : own->scale == OWN_E8M0 ? maximum : (double)(float)maximum;
}

/* The same, as fast as the file that includes this computes it. */
static inline double maximum_of(const hc_sentence *own, const hc_float_rows *x, int64_t i, int64_t first, int64_t n,
                                bool *legal);

/* The sum of the magnitudes; NaN if a value is invalid, which clears *legal. */
static inline double defined_sum(const hc_float_rows *x, int64_t i, int64_t first, int64_t n, bool *legal) {
    double sum = 0;
    bool all_legal = true;
    for (int64_t c = first; c < first + n; c++) {
        const double magnitude = fabs(hc_row_value(x, i, c));
        all_legal = all_legal && hc_is_legal(magnitude);
        sum += magnitude;
    }
    *legal = *legal && all_legal;
    return all_legal ? sum : (double)NAN;
}

/* The same sum, in the same order. */
static inline double sum_of(const hc_float_rows *x, int64_t i, int64_t first, int64_t n, bool *legal);

/* Values of a group of a row without padding. */
static inline int64_t count_of(const hc_geometry *geometry, int64_t group) {
    const int64_t first = group % geometry->groups_per_run * geometry->group;
    return geometry->groups == 1 ? geometry->columns : hc_min(geometry->group, geometry->run_length - first);
}

static inline float mean_of(double sum, int64_t count) { return count > 0 ? (float)(sum / (double)count) : 0.0f; }

static inline double load_shared(const hc_encode_state *state, int64_t i) {
    double value;
    memcpy(&value, state->shared + 2 * i, sizeof value);
    return value;
}

static inline void store_shared(hc_encode_state *state, int64_t i, double value) {
    memcpy(state->shared + 2 * i, &value, sizeof value);
}

/* A quotient in float32. Targets below 1 may take it beyond the largest number, which it becomes, as scales do. */
static inline float saturated_quotient(float a, float b) {
    const float quotient = a / b;
    return quotient <= FLT_MAX ? quotient : FLT_MAX;
}

/* The number that small floats below a second level are multiplied by. */
static inline float second_scale(const hc_sentence *own, float maximum) {
    if (own->scale == OWN_INTEGER)
        return saturated_quotient(maximum, (float)own->target) / (float)((1 << own->scale_bits) - 1);
    const float p = saturated_quotient(maximum, (float)(own->target * own->largest_scale));
    return p == 0 ? 1.0f : p;
}

/* The byte of a group from the bits of its largest magnitude, as of mx.c. */
static inline uint8_t e8m0_byte(const hc_sentence *own, double absmax) {
    const uint64_t fraction = ((uint64_t)1 << 52) - 1, largest = hc_f64_bits(own->target);
    uint64_t bits = hc_f64_bits(absmax);
    if (bits == 0)
        return 0;
    if (own->rule == OWN_EVEN)
        bits += (uint64_t)1 << (52 - own->even_places - 1);
    int exponent = (int)(bits >> 52) - (int)(largest >> 52);
    exponent += own->rule == OWN_CEIL && (bits & fraction) != 0;
    exponent += own->rule == OWN_RCEIL && (bits & fraction) > (largest & fraction);
    return (uint8_t)(hc_max(hc_min(exponent, 127), -127) + 127);
}

static inline float e8m0_scale(uint8_t byte) {
    return byte == 0xff ? NAN : hc_f32_from_bits(byte == 0 ? 0x00400000 : (uint32_t)byte << 23);
}

/* The code of a scale, saturated. Most types are rounded in float32, with the same result. */
static inline uint8_t scale_code(const hc_own_float *own, float value) {
    const int m = own->fraction_bits, top = (int)(own->largest >> m) + 127 - own->bias;
    const hc_float_type type = own_type(own);
    if (isnan(value) || top + 23 - m > 254 || own->bias > 127)
        return (uint8_t)hc_float_encode(&type, (double)value, true);
    return (uint8_t)hc_float_encode_f32(&type, value);
}

/* Writes the scale of a limit; returns S. p: the second level, or 1. */
static inline double store_scale(const hc_sentence *own, double limit, float p, uint8_t *scales, int64_t group) {
    const float s = saturated_quotient((float)limit, (float)own->target);
    switch (own->scale) {
    case OWN_F32:
        hc_store_f32(scales + 4 * group, s);
        return (double)s;
    case OWN_F16:
    case OWN_BF16: {
        const uint32_t code = own_encode_float(&own->scale_type, (double)s, true);
        hc_store_u16(scales + 2 * group, (uint16_t)code);
        return (double)own_decode_float(&own->scale_type, code);
    }
    case OWN_E8M0:
        scales[group] = isnan(limit) ? 0xff : e8m0_byte(own, limit);
        return (double)e8m0_scale(scales[group]);
    default:
        scales[group] = scale_code(&own->scale_type, s / p);
        return (double)hc_saturated_product(own_decode_float(&own->scale_type, scales[group]), p);
    }
}

/* S of a group that is stored; of integers the factor of gamma. */
static inline float load_factor(const hc_sentence *own, const hc_geometry *geometry, const hc_components *components,
                                int64_t row, int64_t group) {
    const uint8_t *scales = hc_part(components, HC_SCALES, row);
    if (own->sharing == OWN_BLOCK) {
        group += (components->first_row + row) / own->block_rows * geometry->groups;
        scales = hc_part(components, HC_SCALES, 0);
    }
    switch (own->sharing == OWN_UNSCALED || own->sharing == OWN_TENSOR ? OWN_N_SCALES : own->scale) {
    case OWN_F32:
        return hc_load_f32(scales + 4 * group);
    case OWN_F16:
    case OWN_BF16:
    case OWN_FLOAT: {
        const uint32_t code = own->scale == OWN_FLOAT ? scales[group] : hc_load_u16(scales + 2 * group);
        const float element = own_decode_float(&own->scale_type, code);
        if (own->second == OWN_ONE_LEVEL)
            return element;
        return hc_saturated_product(element, hc_load_f32(hc_part(components, HC_COARSE, row)));
    }
    case OWN_E8M0:
        return e8m0_scale(scales[group]);
    case OWN_INTEGER:
        return (float)hc_read_bits(scales, group, own->scale_bits);
    default:
        return own->sharing == OWN_TENSOR ? hc_load_f32(hc_part(components, HC_COARSE, row)) : 1;
    }
}

/* gamma of integers, otherwise 1. */
static inline float load_gamma(const hc_sentence *own, const hc_components *components, int64_t row) {
    return own->scale == OWN_INTEGER ? hc_load_f32(hc_part(components, HC_COARSE, row)) : 1;
}

/* Numbers of float32 that rows share. */
static inline int64_t shared_count(const hc_sentence *own, const hc_geometry *geometry) {
    const bool has_sums = own->sharing == OWN_TENSOR && own_is_absmean(own);
    return own->sharing == OWN_BLOCK || has_sums ? 2 * geometry->rows * geometry->groups : 0;
}

static inline int64_t observe_limits(const hc_sentence *own, const hc_geometry *geometry, const hc_float_rows *x,
                                     const float *thresholds, hc_encode_state *state) {
    const bool is_shared = shared_count(own, geometry) > 0;
    int64_t illegal = HC_DONE;
    for (int64_t i = 0; i < x->rows; i++) {
        bool legal = true;
        for (int64_t group = 0; group < geometry->groups; group++) {
            const int64_t first = group * geometry->group;
            const double found = own_is_absmean(own) ? sum_of(x, i, first, geometry->group, &legal)
                                                     : maximum_of(own, x, i, first, geometry->group, &legal);
            if (is_shared)
                store_shared(state, (x->first_row + i) * geometry->groups + group, found);
            else {
                const float limit = thresholds ? thresholds[i * geometry->groups + group] : (float)found;
                state->maximum = limit > state->maximum ? limit : state->maximum;
            }
        }
        if (!legal && illegal == HC_DONE)
            illegal = x->first_row + i;
    }
    return illegal;
}

/* The limit of a group of a row: a threshold, a mean, a largest magnitude; in a block that of the block. */
static inline double limit_of(const hc_sentence *own, const hc_geometry *geometry, const hc_encode_state *state,
                              const hc_float_rows *x, int64_t i, int64_t group, const float *thresholds, bool *legal) {
    const int64_t first = group * geometry->group;
    if (own_is_absmean(own) && own->sharing != OWN_BLOCK)
        return (double)mean_of(sum_of(x, i, first, geometry->group, legal), count_of(geometry, group));
    const double maximum = maximum_of(own, x, i, first, geometry->group, legal);
    if (own->sharing == OWN_BLOCK)
        return load_shared(state, (x->first_row + i) / own->block_rows * geometry->groups + group);
    return thresholds ? (double)thresholds[i * geometry->groups + group] : maximum;
}

/* The second level of a row: gamma, p, or 1. */
static inline float row_second(const hc_sentence *own, const hc_geometry *geometry, const hc_encode_state *state,
                               const hc_float_rows *x, int64_t i, const float *thresholds) {
    if (own->second != OWN_SECOND_ROW)
        return own->second == OWN_SECOND_TENSOR ? state->coarse : 1.0f;
    float maximum = 0;
    bool ignored = true;
    for (int64_t group = 0; group < geometry->groups; group++)
        maximum = fmaxf(maximum, (float)limit_of(own, geometry, state, x, i, group, thresholds, &ignored));
    return second_scale(own, maximum);
}

/* Stores the scale of a group of a row, except those of blocks, which `share` stores; returns S, by which values are
 * divided, or 0. */
static inline double encode_scale(const hc_sentence *own, const hc_geometry *geometry, const hc_encode_state *state,
                                  const hc_float_rows *x, int64_t i, int64_t group, const float *thresholds,
                                  float second, hc_bit_writer *integers, bool *legal, const hc_components *out) {
    const int64_t row = x->first_row + i;
    if (own->sharing == OWN_UNSCALED)
        return 1;
    const double limit = limit_of(own, geometry, state, x, i, group, thresholds, legal);
    if (own->sharing == OWN_TENSOR)
        return (double)state->coarse;
    if (own->sharing == OWN_BLOCK)
        return (double)load_factor(own, geometry, out, row, group);
    if (own->scale != OWN_INTEGER)
        return store_scale(own, limit, second, hc_part(out, HC_SCALES, row), group);
    const double s = (double)saturated_quotient((float)limit, (float)own->target);
    const int32_t top = (1 << own->scale_bits) - 1;
    const int32_t code = second == 0 ? 0 : hc_quotient(s, (double)second, 0, top);
    hc_write_bits(integers, (uint32_t)code, own->scale_bits);
    return code == 0 ? 0 : s;
}

#endif
