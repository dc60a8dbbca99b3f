/* Integers with a minimum per group: names of the options, the factors of a group, and the encoder, which is also
 * compiled for each SIMD set.
 */
#ifndef HC_AFFINE_H
#define HC_AFFINE_H

#include "formats/bits.h"
#include "formats/format.h"

static inline bool affine_has_halves(const hc_format *format) { return format->option[0] != 0; }

/* The scale (HC_SCALES) or the minimum (HC_MINIMA) of a group. */
static inline float affine_factor(const hc_format *format, const hc_components *components, hc_component_id id,
                                  int64_t row, int64_t group) {
    const uint8_t *part = hc_part(components, id, row);
    return affine_has_halves(format) ? hc_f16_to_f32(hc_load_u16(part + 2 * group)) : hc_load_f32(part + 4 * group);
}

/* Stores a number in the format's type; returns the stored value. |value| is at most float32's largest. */
static inline float affine_store(const hc_format *format, const hc_components *out, hc_component_id id, int64_t row,
                                 int64_t group, float value) {
    uint8_t *part = hc_part(out, id, row);
    if (!affine_has_halves(format)) {
        hc_store_f32(part + 4 * group, value);
        return value;
    }
    const float most = 65504.0f;
    const uint16_t half = hc_f32_to_f16(value > most ? most : value < -most ? -most : value);
    hc_store_u16(part + 2 * group, half);
    return hc_f16_to_f32(half);
}

/* value = scale * code + minimum, rounded to float64 (the product is exact there) and then to float32. Of float16
 * factors only an infinite one has values beyond float32, which stay infinite. */
static inline float affine_value(const hc_format *format, double scale, double minimum, int32_t code) {
    const double value = scale * code + minimum;
    return affine_has_halves(format) ? (float)value : hc_saturated(value);
}

enum { AFFINE_PIECE = 512 }; /* values at a time, a multiple of 8 */

/* Columns of a row as float64; false if one is invalid. */
static inline bool affine_load(const hc_float_rows *x, int64_t i, int64_t first, int64_t n, double *to) {
    int legal = 1;
    if (x->dtype == HC_F32) {
        const float *from = (const float *)x->data + i * x->row_stride + first;
        for (int64_t j = 0; j < n; j++)
            to[j] = (double)from[j];
    } else {
        memcpy(to, (const double *)x->data + i * x->row_stride + first, (size_t)n * sizeof *to);
    }
    for (int64_t j = 0; j < n; j++)
        legal &= hc_is_legal(to[j]);
    return legal;
}

/* Values of a group without the padding of a run's last group, which counts for neither the minimum nor the scale. */
static inline int64_t affine_values(const hc_format *format, const hc_geometry *geometry, int64_t group) {
    const int64_t left = geometry->run_length - group % geometry->groups_per_run * geometry->group;
    return format->group == 0 ? geometry->group : hc_min(left, geometry->group);
}

/* Stored scale and minimum of a group of a row. */
static inline bool affine_find(const hc_format *format, const hc_geometry *geometry, const hc_float_rows *x, int64_t i,
                               int64_t group, const hc_components *out) {
    double values[AFFINE_PIECE], low = (double)INFINITY, high = -(double)INFINITY;
    const int64_t begin = group * geometry->group, row = x->first_row + i;
    const int64_t end = begin + affine_values(format, geometry, group);
    bool legal = true;
    for (int64_t first = begin; first < end; first += AFFINE_PIECE) {
        const int64_t n = hc_min(AFFINE_PIECE, end - first);
        legal = affine_load(x, i, first, n, values) && legal;
        for (int64_t j = 0; j < n; j++) {
            low = values[j] < low ? values[j] : low;
            high = values[j] > high ? values[j] : high;
        }
    }
    if (!legal)
        low = high = 0;
    const double minimum = (double)affine_store(format, out, HC_MINIMA, row, group, (float)(low + 0.0)); /* no -0 */
    const double span = high > minimum ? high - minimum : 0;
    affine_store(format, out, HC_SCALES, row, group, (float)(span / hc_largest_code(format->bits, true)));
    return legal;
}

/* Codes of columns [first, first + n), which belong to one group. */
static inline void affine_codes(const double *values, int64_t n, double scale, double minimum, int32_t largest,
                                uint8_t *codes) {
    const double most = (double)largest;
    if (scale == 0) {
        memset(codes, 0, (size_t)n);
        return;
    }
    for (int64_t j = 0; j < n; j++) {
        double quotient = (values[j] - minimum) / scale;
        quotient = quotient > most ? most : quotient;
        quotient = quotient > 0 ? quotient : 0;
        codes[j] = (uint8_t)(int32_t)((quotient + 0x1.8p52) - 0x1.8p52);
    }
}

/* Packs n codes of one byte each to `bits` bits each, from a byte boundary on. */
static inline void affine_pack(const uint8_t *codes, int64_t n, int bits, uint8_t *out);

/* As hc_encode_fn. */
static inline int64_t affine_encode(const hc_format *format, const hc_geometry *geometry, const hc_float_rows *x,
                                    const hc_components *out) {
    const int32_t largest = hc_largest_code(format->bits, true);
    int64_t illegal = HC_DONE;
    for (int64_t i = 0; i < x->rows; i++) {
        const int64_t row = x->first_row + i;
        bool legal = true;
        for (int64_t group = 0; group < geometry->groups; group++)
            legal = affine_find(format, geometry, x, i, group, out) && legal;
        if (!legal && illegal == HC_DONE)
            illegal = row;
        for (int64_t first = 0; first < geometry->padded; first += AFFINE_PIECE) {
            double values[AFFINE_PIECE];
            uint8_t codes[AFFINE_PIECE + HC_CACHE_LINE];
            const int64_t n = hc_min(AFFINE_PIECE, geometry->padded - first);
            affine_load(x, i, first, n, values);
            for (int64_t c = 0, last; c < n; c = last) {
                const int64_t group = (first + c) / geometry->group;
                last = hc_min(n, (group + 1) * geometry->group - first);
                affine_codes(values + c, last - c, (double)affine_factor(format, out, HC_SCALES, row, group),
                             (double)affine_factor(format, out, HC_MINIMA, row, group), largest, codes + c);
            }
            affine_pack(codes, n, format->bits, (uint8_t *)hc_part(out, HC_CODES, row) + first / 8 * format->bits);
        }
    }
    return illegal;
}

#endif
