/* Uniform integers, many values at a time; formats/int/int.c is the definition. */
#include "formats/int/int.h"
#include "formats/simd/decode_rows.h"
#include "formats/simd/doubles.h"
#include "formats/simd/encode_rows.h"
#include "formats/simd/stored_rows.h"

HC_SLICE(plain_slice, HC_CODES_PLAIN)
HC_SLICE(signed_slice, HC_CODES_SIGNED)
HC_SLICE(shifted_slice, HC_CODES_SHIFTED)

/* Stores scales as float16 and replaces them by the stored values. Returns false if a scale was cut to float16's
 * largest or is subnormal; codes may then leave their range. */
static inline bool store_half_scales(float *scales, int64_t n, int64_t whole, uint8_t *out) {
    uint16_t halves[SEGMENT_GROUPS + UNIT];
    int within = 1;
    for (int64_t i = 0; i < whole; i += 8)
        simd_store_halves(scales + i, 65504.0f, halves + i);
    for (int64_t i = 0; i < whole; i++)
        within &= (scales[i] == 0) | ((scales[i] > 0x1p-14f) & (scales[i] < 65504.0f));
    memcpy(out, halves, (size_t)n * sizeof *halves);
    return within;
}

/* max(x, 0) and max(-x, 0) of the groups of a segment. */
typedef struct {
    double high[SEGMENT_GROUPS + UNIT], low[SEGMENT_GROUPS + UNIT];
} hc_ends;

/* The ends of float64 groups, compared as integers, which compilers vectorize. */
static __attribute__((noinline)) void double_ends(const double *x, int64_t n_groups, int64_t length, hc_ends *ends) {
    for (int64_t group = 0; group < n_groups; group++) {
        int64_t high = 0, low = 0;
        for (int64_t i = group * length; i < (group + 1) * length; i++) {
            int64_t bits;
            memcpy(&bits, x + i, sizeof bits);
            const int64_t negated = bits ^ INT64_MIN;
            high = bits > high ? bits : high;
            low = negated > low ? negated : low;
        }
        memcpy(&ends->high[group], &high, sizeof high);
        memcpy(&ends->low[group], &low, sizeof low);
    }
}

/* Fills the ends of n groups, then zeros to whole units; false if a value is invalid. */
static inline bool find_ends(const hc_geometry *geometry, hc_values x, int64_t n, hc_segment *segment, hc_ends *ends) {
    const int64_t whole = hc_round_up(n, UNIT);
    int legal = 1;
    if (x.doubles) {
        double_ends(x.doubles, n, geometry->group, ends);
        for (int64_t i = n; i < whole; i++)
            ends->high[i] = ends->low[i] = 0;
    } else {
        float minimum[SEGMENT_GROUPS + UNIT];
        group_maxima(geometry, x, n, HC_POSITIVE, segment, segment->maximum);
        group_maxima(geometry, x, n, HC_NEGATIVE, segment, minimum);
        for (int64_t i = 0; i < whole; i++) {
            ends->high[i] = (double)segment->maximum[i];
            ends->low[i] = (double)minimum[i];
        }
    }
    for (int64_t i = 0; i < n; i++)
        legal &= (int)is_finite((float)ends->high[i]) & is_finite((float)ends->low[i]);
    return legal;
}

static inline void cut_ends(const float *thresholds, int64_t n, hc_ends *ends) {
    for (int64_t i = 0; i < n; i++) {
        const double threshold = (double)thresholds[i];
        ends->high[i] = ends->high[i] > threshold ? threshold : ends->high[i];
        ends->low[i] = ends->low[i] > threshold ? threshold : ends->low[i];
    }
}

/* Zero points clip(RNE(-low / s)) of a segment, and their packed form. */
static inline void zero_points(const hc_ends *ends, int64_t n, int64_t whole, int32_t largest, int bits,
                               hc_segment *segment, uint8_t *out) {
    uint8_t bytes[SEGMENT_GROUPS + HC_CACHE_LINE];
    for (int64_t i = 0; i < whole; i++) {
        double quotient = ends->low[i] / (double)segment->multiple[i];
        quotient = quotient < largest ? quotient : largest;
        const int32_t zero = (int32_t)((quotient + 0x1.8p52) - 0x1.8p52);
        segment->zero[i] = segment->multiple[i] != 0 ? zero : 0;
        bytes[i] = (uint8_t)segment->zero[i];
    }
    pack_bytes(bytes, n, bits, out);
}

/* Computes and stores the scales and zero points of a segment. Returns the function that computes its codes. */
static inline hc_slice_fn *segment_scales(const hc_format *format, int64_t n, bool clipped, const hc_ends *ends,
                                          hc_segment *segment, uint8_t *scales, uint8_t *zeros) {
    const bool symmetric = int_is_symmetric(format);
    const int32_t largest = int_largest_code(format);
    const int64_t whole = hc_round_up(n, UNIT);
    float *scale = segment->multiple;
    if (symmetric)
        for (int64_t i = 0; i < whole; i++)
            scale[i] = segment->maximum[i] / (float)largest;
    else
        for (int64_t i = 0; i < whole; i++)
            scale[i] = (float)((ends->high[i] + ends->low[i]) / largest);
    if (int_has_half_scales(format))
        clipped |= !store_half_scales(scale, n, whole, scales);
    else
        memcpy(scales, scale, (size_t)n * sizeof *scale);
    segment->factor = 1;
    invert_scales(scale, whole, segment->reciprocal, segment);
    if (!symmetric)
        zero_points(ends, n, whole, largest, format->bits, segment, zeros);
    return !symmetric ? shifted_slice : clipped ? signed_slice : plain_slice;
}

/* Rows of 16- or 24-bit codes, by division: the quotients have too many bits for a float32 reciprocal. */
static inline void encode_wide(hc_values x, int64_t n, double divisor, int32_t largest, int n_bytes, uint8_t *out) {
    int32_t codes[SLICE];
    if (divisor == 0)
        divisor = (double)INFINITY;
    for (int64_t first = 0; first < n; first += SLICE) {
        const int64_t count = hc_min(SLICE, n - first);
        for (int64_t i = 0; i < count; i++) {
            double quotient = (x.doubles ? x.doubles[first + i] : (double)x.singles[first + i]) / divisor;
            quotient = quotient < largest ? quotient : largest;
            quotient = quotient > -largest ? quotient : -largest;
            codes[i] = (int32_t)((quotient + 0x1.8p52) - 0x1.8p52);
        }
        uint8_t *to = out + first * n_bytes;
        if (n_bytes == 2)
            for (int64_t i = 0; i < count; i++) {
                to[2 * i] = (uint8_t)codes[i];
                to[2 * i + 1] = (uint8_t)((uint32_t)codes[i] >> 8);
            }
        else
            for (int64_t i = 0; i < count; i++) {
                to[3 * i] = (uint8_t)codes[i];
                to[3 * i + 1] = (uint8_t)((uint32_t)codes[i] >> 8);
                to[3 * i + 2] = (uint8_t)((uint32_t)codes[i] >> 16);
            }
    }
}

static inline int64_t encode_wide_rows(const hc_format *format, const hc_geometry *geometry, const hc_float_rows *x,
                                       const float *thresholds, const hc_components *out) {
    const int32_t largest = int_largest_code(format);
    hc_floats floats;
    init_floats(HC_NEAREST, &floats);
    for (int64_t i = 0; i < x->rows; i++) {
        const int64_t row = x->first_row + i;
        const hc_values from = row_values(x, i);
        const float absmax = values_maximum(from, geometry->padded, HC_ABSOLUTE, &floats);
        if (!is_finite(absmax))
            return row;
        const float scale = (thresholds ? thresholds[i] : absmax) / (float)largest;
        hc_store_f32(hc_part(out, HC_SCALES, row), scale);
        encode_wide(from, geometry->padded, (double)scale, largest, format->bits / 8, hc_part(out, HC_CODES, row));
    }
    return HC_DONE;
}

static int64_t encode(const hc_format *format, const hc_geometry *geometry, const hc_encode_state *state,
                      const hc_float_rows *x, const float *thresholds, const hc_components *out) {
    const int bits = format->bits, scale_bytes = int_has_half_scales(format) ? 2 : 4;
    const bool symmetric = int_is_symmetric(format);
    (void)state;
    if (!serves(geometry))
        return HC_DECLINED;
    if (bits > 8)
        return encode_wide_rows(format, geometry, x, thresholds, out);
    const int32_t largest = int_largest_code(format);
    const hc_code_range range = code_range(symmetric ? -largest : 0, largest);
    const int64_t step = segment_groups(geometry);
    hc_segment segment;
    hc_ends ends;
    init_segment(geometry, &segment);
    for (int64_t i = 0; i < x->rows; i++) {
        const int64_t row = x->first_row + i;
        for (int64_t group = 0; group < geometry->groups; group += step) {
            const int64_t n = hc_min(step, geometry->groups - group), first = group * geometry->group;
            const hc_values from = values_from(row_values(x, i), first);
            if (!(symmetric ? group_maxima(geometry, from, n, HC_ABSOLUTE, &segment, segment.maximum)
                            : find_ends(geometry, from, n, &segment, &ends)))
                return row;
            const float *threshold = thresholds ? thresholds + i * geometry->groups + group : NULL;
            if (threshold && symmetric)
                memcpy(segment.maximum, threshold, (size_t)n * sizeof *threshold);
            else if (threshold)
                cut_ends(threshold, n, &ends);
            hc_slice_fn *encode =
                segment_scales(format, n, thresholds != NULL, &ends, &segment,
                               (uint8_t *)hc_part(out, HC_SCALES, row) + group * scale_bytes,
                               symmetric ? NULL : (uint8_t *)hc_part(out, HC_ZERO_POINTS, row) + group / 8 * bits);
            encode_groups(geometry, from, 0, n, &segment, &range, encode, step * geometry->group * 4, bits,
                          (uint8_t *)hc_part(out, HC_CODES, row) + first / 8 * bits);
        }
    }
    return HC_DONE;
}

static inline void load_terms(const hc_format *format, const hc_geometry *geometry, const hc_components *components,
                              int64_t row, int64_t first_group, int64_t n, hc_terms *terms) {
    const uint8_t *scales = hc_part(components, HC_SCALES, row);
    terms->is_signed = int_is_symmetric(format);
    terms->has_integer = false;
    terms->has_zero = !terms->is_signed;
    for (int64_t i = 0; i < n; i++)
        terms->real[i] = int_load_scale(format, scales, first_group + i);
    if (terms->has_zero)
        unpack_numbers(hc_part(components, HC_ZERO_POINTS, row), (geometry->groups * format->bits + 7) / 8, first_group,
                       n, format->bits, terms->zero);
}

static inline float load_row_scale(const hc_format *format, const hc_components *components, int64_t row) {
    return format->group ? 1.0f : int_load_scale(format, hc_part(components, HC_SCALES, row), 0);
}

static inline int count_limbs(const hc_format *format, hc_int_mode mode) {
    (void)mode;
    return hc_limbs_for(int_largest_code(format)); /* q - z up to 255 */
}

/* Converts n scales from float16; reads no byte after them. */
static inline void widen_scales(const uint8_t *halves, int64_t n, float *scales) {
    int64_t i = 0;
    for (; i + 8 <= n; i += 8)
        simd_from_halves(halves + 2 * i, scales + i);
    for (; i < n; i++)
        scales[i] = hc_f16_to_f32((uint16_t)(halves[2 * i] | halves[2 * i + 1] << 8));
}

static int64_t integers(const hc_format *format, const hc_geometry *geometry, const hc_components *components,
                        const hc_tile *tile, hc_int_mode mode, const hc_int_tile *out) {
    const bool is_plain = format->bits <= 8 && int_is_symmetric(format) && tile->first_column % 8 == 0;
    if (!is_plain || !(mode == HC_INT_GROUPED || (mode == HC_INT_FOLDED && !format->group)))
        return decode_integers(format, geometry, components, tile, mode, out);
    const int64_t first = tile->first_column / geometry->group;
    const int64_t groups = hc_ceil_div(tile->first_column + tile->columns, geometry->group) - first;
    for (int64_t i = 0; i < tile->rows; i++) {
        const uint8_t *scales = hc_part(components, HC_SCALES, tile->first_row + i);
        plain_integers(geometry, components, tile, i, format->bits, true, out);
        if (mode == HC_INT_FOLDED)
            out->row_scale[i] = int_load_scale(format, scales, 0);
        else if (int_has_half_scales(format))
            widen_scales(scales + 2 * first, groups, out->group_scale + i * out->groups_ld);
        else
            memcpy(out->group_scale + i * out->groups_ld, scales + 4 * first, (size_t)groups * 4);
    }
    return HC_DONE;
}

static inline hc_stored_group load_group(const hc_format *format, const hc_stored_row *row, int64_t group) {
    const float scale = int_has_half_scales(format) ? lanes_from_f16(hc_load_u16(row->scales + 2 * group))
                                                    : hc_load_f32(row->scales + 4 * group);
    return (hc_stored_group){scale, 1};
}

/* 4-bit codes with zero points: the values of a group are 16 of the integers -15 to 15, times its scale. */
static int64_t shifted_nibbles(const hc_format *format, const hc_geometry *geometry, const hc_components *components,
                               const hc_tile *tile, float *to, int64_t ld) {
    enum { MOST = 15 };
    float integers[2 * MOST + 1];
    for (int i = 0; i <= 2 * MOST; i++)
        integers[i] = (float)(i - MOST);
    for (int64_t i = 0; i < tile->rows; i++, to += ld) {
        const uint8_t *codes = hc_part(components, HC_CODES, tile->first_row + i);
        const uint8_t *zeros = hc_part(components, HC_ZERO_POINTS, tile->first_row + i);
        const hc_stored_row row = {.scales = hc_part(components, HC_SCALES, tile->first_row + i)};
        for (int64_t c = tile->first_column, last = c + tile->columns, end; c < last; c = end) {
            const int64_t g = c / geometry->group;
            const float *from = integers + MOST - (zeros[g / 2] >> g % 2 * 4 & 15);
            const hc_table16 table =
                simd_scaled_entries(from, HC_BY_TABLE16, false, 1, load_group(format, &row, g).scale);
            end = hc_min((g + 1) * geometry->group, last);
            simd_lookup4(codes + c / 2, end - c, table, to + c - tile->first_column);
        }
    }
    return HC_DONE;
}

static int64_t values(const hc_format *format, const hc_geometry *geometry, const hc_components *components,
                      const hc_tile *tile, float *to, int64_t ld) {
    if (int_is_symmetric(format) && reads_stored(format, geometry, tile))
        return stored_integers(format, geometry, components, tile, true, false, to, ld);
    if (!int_is_symmetric(format) && format->bits == 4 && reads_stored(format, geometry, tile))
        return shifted_nibbles(format, geometry, components, tile, to, ld);
    return decode_values(format, geometry, components, tile, to, ld);
}

HC_DOUBLES(decode_codes, false)

HC_SIMD_TABLE(int, .encode = encode, .values = values, .integers = integers, .doubles = doubles, .codes = decode_codes);
