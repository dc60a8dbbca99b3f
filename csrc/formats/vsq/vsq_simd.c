/* VS-Quant, many values at a time; formats/vsq/vsq.c is the definition. */
#define HC_KEPT_GROUPS 1024 /* most groups of a row whose coarse scale is computed after its codes */

#include "formats/simd/decode_rows.h"
#include "formats/simd/doubles.h"
#include "formats/simd/encode_rows.h"
#include "formats/simd/stored_rows.h"
#include "formats/vsq/vsq.h"

/* n scales of `bits` bits, little end first. */
static inline void pack_scales(const int32_t *codes, int64_t n, int bits, uint8_t *out) {
    if (bits <= 8) {
        uint8_t bytes[HC_KEPT_GROUPS + 64];
        for (int64_t i = 0; i < n; i++)
            bytes[i] = (uint8_t)codes[i];
        pack_bytes(bytes, n, bits, out);
        return;
    }
    uint64_t pending = 0;
    int n_pending = 0;
    for (int64_t i = 0; i < n; i++) {
        pending |= (uint64_t)codes[i] << n_pending;
        for (n_pending += bits; n_pending >= 8 || (i + 1 == n && n_pending > 0); n_pending -= 8, pending >>= 8)
            *out++ = (uint8_t)pending;
    }
}

/* clip(RNE(s / gamma)); by the reciprocal if no quotient is near a midpoint. */
static inline void scale_codes(const float *scales, int64_t n, float coarse, int32_t largest, int32_t *codes) {
    const hc_code_range range = code_range(0, largest);
    const float reciprocal = 1.0f / coarse;
    int near = coarse == 0 || !is_plain(coarse);
    for (int64_t i = 0; i < n; i++) {
        const float quotient = scales[i] * reciprocal, code = (quotient + 0x1.8p23f) - 0x1.8p23f;
        near |= fabsf(quotient - code) > range.near;
        codes[i] = (int32_t)(code < (float)largest ? code : (float)largest);
    }
    for (int64_t i = 0; i < n && near; i++) {
        double quotient = coarse == 0 ? 0 : (double)scales[i] / (double)coarse;
        quotient = quotient > largest ? largest : quotient;
        codes[i] = (int32_t)((quotient + 0x1.8p52) - 0x1.8p52);
    }
}

HC_SLICE(plain_slice, HC_CODES_PLAIN)
HC_SLICE(signed_slice, HC_CODES_SIGNED)
HC_SLICE(unsigned_slice, HC_CODES_UNSIGNED)

/* The parameters that all rows share, and the memory of the current row. */
typedef struct {
    const hc_format *format;
    const hc_geometry *geometry;
    bool is_unsigned, refit;
    int bits, scale_bits;
    int32_t largest, largest_scale;
    hc_code_range range;
    hc_slice_fn *encode;
    int64_t step; /* groups per segment */
    hc_values x;
    const float *thresholds;
    uint8_t *codes, *scales;
} hc_vsq_row;

/* Scales of groups [group, group + n), from their largest magnitudes or thresholds, to index `at` of the segment.
 * Returns false if a value is invalid. */
static inline bool row_maxima(const hc_vsq_row *row, int64_t group, int64_t n, int64_t at, hc_segment *segment) {
    const hc_values from = values_from(row->x, group * row->geometry->group);
    float *maximum = segment->maximum;
    if (row->is_unsigned) {
        if (!group_maxima(row->geometry, from, n, HC_POSITIVE, segment, maximum) ||
            !is_finite(values_maximum(from, n * row->geometry->group, HC_NEGATIVE, &segment->floats)))
            return false;
    } else if (!group_maxima(row->geometry, from, n, HC_ABSOLUTE, segment, maximum)) {
        return false;
    }
    if (row->thresholds)
        memcpy(maximum, row->thresholds + group, (size_t)n * sizeof *maximum);
    const int64_t whole = hc_round_up(n, UNIT);
    for (int64_t i = 0; i < whole; i++)
        segment->multiple[at + i] = maximum[i] / (float)row->largest;
    return true;
}

static inline void row_codes(const hc_vsq_row *row, int64_t group, int64_t n, int64_t at, hc_segment *segment) {
    const int64_t first = group * row->geometry->group;
    encode_groups(row->geometry, values_from(row->x, first), at, n, segment, &row->range, row->encode,
                  row->step * row->geometry->group * 4, row->bits, row->codes + first / 8 * row->bits);
}

/* Encodes a row of up to HC_KEPT_GROUPS groups: codes, then the coarse scale, then codes 0 where a scale became 0. */
static inline bool encode_fine_first(const hc_vsq_row *row, hc_segment *segment, float *coarse) {
    const int64_t groups = row->geometry->groups, whole = hc_round_up(groups, UNIT);
    segment->factor = 1;
    segment->far = 2 * SEGMENT_VALUES * (int64_t)sizeof(float);
    for (int64_t group = 0; group < groups; group += row->step) {
        const int64_t n = hc_min(row->step, groups - group);
        if (!row_maxima(row, group, n, group, segment))
            return false;
        invert_scales(segment->multiple + group, hc_round_up(n, UNIT), segment->reciprocal + group, segment);
        row_codes(row, group, n, group, segment);
    }
    *coarse = largest_of(segment->multiple, groups) / (float)row->largest_scale;
    int32_t codes[HC_KEPT_GROUPS + UNIT];
    scale_codes(segment->multiple, whole, *coarse, row->largest_scale, codes);
    pack_scales(codes, groups, row->scale_bits, row->scales);
    int zeros = 0;
    for (int64_t i = 0; i < groups; i++)
        zeros |= codes[i] == 0;
    const int64_t n = row->geometry->group;
    for (int64_t i = 0; i < groups && zeros; i++)
        if (codes[i] == 0) /* a group starts on a byte, or it is the whole row */
            memset(row->codes + i * n / 8 * row->bits, 0, (size_t)(n * row->bits + 7) / 8);
    return true;
}

/* Encodes a row with one level, or with two levels if the coarse scale is known. */
static inline bool encode_with(const hc_vsq_row *row, float coarse, hc_segment *segment) {
    for (int64_t group = 0; group < row->geometry->groups; group += row->step) {
        const int64_t n = hc_min(row->step, row->geometry->groups - group), whole = hc_round_up(n, UNIT);
        float *scale = segment->multiple, product[SEGMENT_GROUPS + UNIT];
        if (!row_maxima(row, group, n, 0, segment))
            return false;
        segment->factor = 1;
        if (row->scale_bits == 0) {
            memcpy(row->scales + group * 4, scale, (size_t)n * sizeof *scale);
        } else {
            int32_t codes[SEGMENT_GROUPS + UNIT];
            scale_codes(scale, whole, coarse, row->largest_scale, codes);
            pack_scales(codes, n, row->scale_bits, row->scales + group / 8 * row->scale_bits);
            if (row->refit) /* the divisor coarse * code is exact; only the reciprocals use the rounded product */
                segment->factor = coarse;
            for (int64_t i = 0; i < whole; i++)
                scale[i] =
                    row->refit ? (float)codes[i] : hc_f32_from_bits(hc_f32_bits(scale[i]) & -(uint32_t)(codes[i] != 0));
        }
        for (int64_t i = 0; i < whole; i++)
            product[i] = segment->factor * scale[i];
        invert_scales(product, whole, segment->reciprocal, segment);
        row_codes(row, group, n, 0, segment);
    }
    return true;
}

/* Computes the coarse scale of a row before its codes. */
static inline bool find_coarse(const hc_vsq_row *row, hc_segment *segment, float *coarse) {
    float largest = 0;
    for (int64_t group = 0; group < row->geometry->groups; group += row->step) {
        const int64_t n = hc_min(row->step, row->geometry->groups - group);
        if (!row_maxima(row, group, n, 0, segment))
            return false;
        largest = fmaxf(largest, largest_of(segment->multiple, n));
    }
    *coarse = largest / (float)row->largest_scale;
    return true;
}

static int64_t encode(const hc_format *format, const hc_geometry *geometry, const hc_encode_state *state,
                      const hc_float_rows *x, const float *thresholds, const hc_components *out) {
    if (!serves(geometry))
        return HC_DECLINED;
    hc_vsq_row row = {.format = format,
                      .geometry = geometry,
                      .is_unsigned = vsq_is_unsigned(format),
                      .refit = vsq_is_refit(format),
                      .bits = format->bits,
                      .scale_bits = vsq_scale_bits(format),
                      .largest = vsq_largest_code(format),
                      .largest_scale = vsq_largest_scale(format),
                      .step = segment_groups(geometry)};
    row.range = code_range(row.is_unsigned ? 0 : -row.largest, row.largest);
    row.encode = row.is_unsigned ? unsigned_slice : row.refit || thresholds ? signed_slice : plain_slice;
    const bool tensor = vsq_has_tensor_coarse(format), row_coarse = row.scale_bits != 0 && !tensor;
    hc_segment segment;
    init_segment(geometry, &segment);
    if (tensor && x->first_row == 0)
        hc_store_f32(hc_part(out, HC_COARSE, 0), state->coarse);
    for (int64_t i = 0; i < x->rows; i++) {
        const int64_t number = x->first_row + i;
        row.x = row_values(x, i);
        row.thresholds = thresholds ? thresholds + i * geometry->groups : NULL;
        row.codes = hc_part(out, HC_CODES, number);
        row.scales = hc_part(out, HC_SCALES, number);
        float coarse = tensor ? state->coarse : 0;
        bool legal;
        if (row_coarse && !row.refit && geometry->groups <= HC_KEPT_GROUPS)
            legal = encode_fine_first(&row, &segment, &coarse);
        else
            legal = (!row_coarse || find_coarse(&row, &segment, &coarse)) && encode_with(&row, coarse, &segment);
        if (!legal)
            return number;
        if (row_coarse)
            hc_store_f32(hc_part(out, HC_COARSE, number), coarse);
    }
    return HC_DONE;
}

static inline float load_row_scale(const hc_format *format, const hc_components *components, int64_t row) {
    return vsq_has_two_levels(format) ? hc_load_f32(hc_part(components, HC_COARSE, row)) : 1.0f;
}

static inline void load_terms(const hc_format *format, const hc_geometry *geometry, const hc_components *components,
                              int64_t row, int64_t first_group, int64_t n, hc_terms *terms) {
    const uint8_t *scales = hc_part(components, HC_SCALES, row);
    const int scale_bits = vsq_scale_bits(format);
    terms->is_signed = !vsq_is_unsigned(format);
    terms->has_integer = scale_bits != 0;
    terms->has_zero = false;
    if (scale_bits == 0) {
        memcpy(terms->real, scales + first_group * 4, (size_t)n * 4);
        return;
    }
    const float coarse = load_row_scale(format, components, row);
    for (int64_t i = 0; i < n; i++)
        terms->real[i] = coarse;
    unpack_numbers(scales, (geometry->groups * scale_bits + 7) / 8, first_group, n, scale_bits, terms->integer);
}

static inline int count_limbs(const hc_format *format, hc_int_mode mode) {
    return hc_limbs_for(vsq_largest_integer(format, mode));
}

/* True if codes and scales have 4 bits each, so that their products are bytes. */
static inline bool folds_bytes(const hc_format *format, const hc_geometry *geometry, const hc_tile *tile) {
    const int64_t group = geometry->group;
    return format->bits == 4 && vsq_scale_bits(format) == 4 && !vsq_is_unsigned(format) &&
           (group == 16 || group == 32 || group == 64) && tile->first_column % (2 * group) == 0;
}

static int64_t integers(const hc_format *format, const hc_geometry *geometry, const hc_components *components,
                        const hc_tile *tile, hc_int_mode mode, const hc_int_tile *out) {
    const int64_t group = geometry->group;
    const int scale_bits = vsq_scale_bits(format);
    const bool splits = mode == HC_INT_SPLIT && scale_bits > 0 && scale_bits <= 8;
    const bool has_floats = mode == HC_INT_GROUPED && !vsq_has_two_levels(format);
    if ((splits || has_floats) && !vsq_is_unsigned(format) && tile->first_column % 8 == 0) {
        const int64_t first = tile->first_column / group;
        const int64_t groups = hc_ceil_div(tile->first_column + tile->columns, group) - first;
        for (int64_t i = 0; i < tile->rows; i++) {
            const uint8_t *scales = hc_part(components, HC_SCALES, tile->first_row + i);
            float *to = out->group_scale + i * out->groups_ld;
            plain_integers(geometry, components, tile, i, format->bits, true, out);
            if (has_floats) {
                memcpy(to, scales + 4 * first, (size_t)groups * sizeof *to);
                continue;
            }
            for (int64_t g = 0; g < groups && scale_bits == 8; g++)
                to[g] = scales[first + g];
            for (int64_t from = 0; from < groups && scale_bits < 8; from += CHUNK) {
                const int64_t n = hc_min(groups - from, CHUNK);
                int32_t integer[CHUNK];
                unpack_numbers(scales, (geometry->groups * scale_bits + 7) / 8, first + from, n, scale_bits, integer);
                for (int64_t g = 0; g < n; g++)
                    to[from + g] = (float)integer[g];
            }
            out->row_scale[i] = load_row_scale(format, components, tile->first_row + i);
        }
        return HC_DONE;
    }
    if (mode != HC_INT_FOLDED || !folds_bytes(format, geometry, tile))
        return decode_integers(format, geometry, components, tile, mode, out);
    enum { AT_ONCE = 64 };
    for (int64_t i = 0; i < tile->rows; i++) {
        const int64_t row = tile->first_row + i;
        const uint8_t *codes = (const uint8_t *)hc_part(components, HC_CODES, row) + tile->first_column / 2;
        const uint8_t *scales = (const uint8_t *)hc_part(components, HC_SCALES, row) + tile->first_column / group / 2;
        int8_t *to = out->limb[0] + i * out->ld;
        out->row_scale[i] = load_row_scale(format, components, row);
        const int64_t done = simd_fold4(codes, scales, group, tile->columns, to), left = tile->columns - done;
        if (left > 0) { /* as many as at once, the rest of them zeros */
            uint8_t last[AT_ONCE / 2] = {0}, last_scales[AT_ONCE / 16 / 2] = {0};
            int8_t integer[AT_ONCE];
            memcpy(last, codes + done / 2, (size_t)((left + 1) / 2));
            memcpy(last_scales, scales + done / group / 2, (size_t)((hc_ceil_div(left, group) + 1) / 2));
            if (group == AT_ONCE && done / group % 2 == 1)
                last_scales[0] >>= 4;
            simd_fold4(last, last_scales, group, AT_ONCE, integer);
            memcpy(to + done, integer, (size_t)left);
        }
    }
    return HC_DONE;
}

static inline hc_stored_group load_group(const hc_format *format, const hc_stored_row *row, int64_t group) {
    static const float numbers[16] = {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15};
    const int bits = vsq_scale_bits(format);
    if (bits == 0)
        return (hc_stored_group){hc_load_f32(row->scales + 4 * group), 1};
    const float coarse = hc_load_f32(row->coarse);
    if (bits == 8)
        return (hc_stored_group){coarse, row->scales[group]};
    return (hc_stored_group){coarse, numbers[row->scales[group >> 1] >> (group & 1) * 4 & 15]};
}

/* Values of 4-bit codes with 4-bit scales in groups of 16. The products of codes and scales are computed as bytes. */
static int64_t folded_values(const hc_format *format, const hc_components *components, const hc_tile *tile, float *to,
                             int64_t ld) {
    const hc_format local = *format; /* a copy, which stores to `values` cannot change */
    const int64_t columns = tile->columns;
    for (int64_t i = 0; i < tile->rows; i++, to += ld) {
        const int64_t row = tile->first_row + i;
        const uint8_t *codes = (const uint8_t *)hc_part(components, HC_CODES, row) + tile->first_column / 2;
        const uint8_t *scales = (const uint8_t *)hc_part(components, HC_SCALES, row) + tile->first_column / 32;
        const float coarse = load_row_scale(&local, components, row);
        for (int64_t c = 0; c < columns; c += 4 * UNIT)
            simd_folded_values(codes + c / 2, scales + c / 32, coarse, to + c);
    }
    return HC_DONE;
}

static int64_t values(const hc_format *format, const hc_geometry *geometry, const hc_components *components,
                      const hc_tile *tile, float *to, int64_t ld) {
    const int scale_bits = vsq_scale_bits(format);
    const bool is_signed = !vsq_is_unsigned(format);
    if (geometry->group == UNIT && folds_bytes(format, geometry, tile) && tile->columns % (4 * UNIT) == 0)
        return folded_values(format, components, tile, to, ld);
    if ((scale_bits != 0 && scale_bits != 4 && scale_bits != 8) || !reads_stored(format, geometry, tile))
        return decode_values(format, geometry, components, tile, to, ld);
    if (scale_bits == 0)
        return is_signed ? stored_integers(format, geometry, components, tile, true, false, to, ld)
                         : stored_integers(format, geometry, components, tile, false, false, to, ld);
    return is_signed ? stored_integers(format, geometry, components, tile, true, true, to, ld)
                     : stored_integers(format, geometry, components, tile, false, true, to, ld);
}

static int64_t doubles(const hc_format *format, const hc_geometry *geometry, const hc_components *components,
                       const hc_tile *tile, double *values, int64_t ld) {
    return decode_doubles(format, geometry, components, tile, decode_codes, vsq_has_two_levels(format), values, ld);
}

HC_SIMD_TABLE(vsq, .encode = encode, .values = values, .integers = integers, .doubles = doubles, .codes = decode_codes);
