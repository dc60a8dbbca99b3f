/* Microscaling, many values at a time; formats/mx/mx.c is the definition. */
#include "formats/mx/mx.h"
#include "formats/simd/decode_elements.h"
#include "formats/simd/doubles.h"
#include "formats/simd/encode_rows.h"
#include "formats/simd/stored_rows.h"

#include <float.h>

HC_SLICE(e4m3_slice, HC_CODES_E4M3 | HC_EXACT)
HC_SLICE(e5m2_slice, HC_CODES_E5M2 | HC_EXACT)
HC_SLICE(e3m2_slice, HC_CODES_E3M2 | HC_EXACT)
HC_SLICE(e2m3_slice, HC_CODES_E2M3 | HC_EXACT)
HC_SLICE(e2m1_slice, HC_CODES_E2M1 | HC_EXACT)
HC_SLICE(int8_slice, HC_CODES_SIGNED)

static inline hc_slice_fn *slice_of(const hc_format *format) {
    static hc_slice_fn *const slices[] = {e4m3_slice, e5m2_slice, e3m2_slice, e2m3_slice, e2m1_slice, int8_slice};
    return slices[mx_element(format) - MX_FIRST_ELEMENT];
}

/* Bytes of `whole` groups, and the factors of their values: 2^-e, or 2^(6 - e) for int8 codes. */
static inline void group_powers(const hc_format *format, int64_t whole, hc_segment *segment, uint8_t *bytes) {
    const uint32_t fraction = 0x7fffff, largest = hc_f32_bits(mx_largest(format));
    const uint32_t half = mx_rule(format) == MX_EVEN ? (uint32_t)1 << (22 - mx_fraction_bits(format)) : 0;
    const uint32_t over = mx_rule(format) == MX_CEIL    ? 0
                          : mx_rule(format) == MX_RCEIL ? largest & fraction
                                                        : fraction; /* no fraction exceeds this */
    const int32_t top = (int32_t)(largest >> 23);
    for (int64_t i = 0; i < whole; i++) {
        const float absmax = segment->maximum[i];
        const bool subnormal = hc_f32_bits(absmax) < 0x00800000;
        const uint32_t bits = (subnormal ? hc_f32_bits(absmax * 0x1p24f) : hc_f32_bits(absmax)) + half;
        int32_t e = (int32_t)(bits >> 23) - top - (subnormal ? 24 : 0) + ((bits & fraction) > over);
        e = e < -127 ? -127 : e > 127 ? 127 : e;
        bytes[i] = (uint8_t)(e + 127);
        segment->reciprocal[i] = hc_f32_from_bits(e == 127 ? 0x00400000 : (uint32_t)(127 - e) << 23);
    }
    segment->factor = 1;
    segment->divide = false;
    if (mx_element(format) != MX_INT8)
        return;
    int divide = 0;
    for (int64_t i = 0; i < whole; i++) {
        const bool tiny = segment->reciprocal[i] > 0x1p121f && segment->maximum[i] != 0;
        segment->multiple[i] = 0x1p-6f / segment->reciprocal[i]; /* down to 2^-133: exact */
        segment->reciprocal[i] = segment->maximum[i] != 0 ? 64 * segment->reciprocal[i] : 0;
        divide |= tiny;
    }
    segment->divide = divide;
}

/* Writes the byte of NaN and codes 0 for groups with a NaN or an infinity. */
static __attribute__((noinline)) void mark_groups(const hc_segment *segment, int64_t n, int64_t length, int bits,
                                                  uint8_t *scales, uint8_t *codes) {
    for (int64_t i = 0; i < n; i++)
        if (!is_finite(segment->maximum[i])) {
            scales[i] = MX_NAN_BYTE;
            memset(codes + i * length / 8 * bits, 0, (size_t)(length * bits + 7) / 8);
        }
}

/* False if a finite value is 2^128 or more. */
static __attribute__((noinline)) bool is_legal(const double *x, int64_t n) {
    int beyond = 0;
    for (int64_t i = 0; i < n; i++)
        beyond |= (fabs(x[i]) >= 0x1p128) & (fabs(x[i]) <= DBL_MAX);
    return !beyond;
}

static int64_t encode(const hc_format *format, const hc_geometry *geometry, const hc_encode_state *state,
                      const hc_float_rows *x, const float *thresholds, const hc_components *out) {
    (void)state, (void)thresholds;
    if (!serves(geometry) || mx_rule(format) == MX_GGML)
        return HC_DECLINED;
    const int bits = format->bits;
    hc_slice_fn *encode_slices = slice_of(format);
    /* products with powers of two are exact: no distance from a midpoint is too small */
    const hc_code_range range = {.near = 1, .low = -127, .high = 127, .limit = mx_largest(format)};
    const int64_t step = segment_groups(geometry);
    hc_segment segment;
    init_segment(geometry, &segment);
    segment.floats.rounding = HC_ODD; /* the exponents of scales depend on few bits too */
    for (int64_t i = 0; i < x->rows; i++) {
        const int64_t row = x->first_row + i;
        uint8_t *scales = hc_part(out, HC_SCALES, row), *codes = hc_part(out, HC_CODES, row);
        for (int64_t group = 0; group < geometry->groups; group += step) {
            const int64_t n = hc_min(step, geometry->groups - group), first = group * geometry->group;
            uint8_t bytes[SEGMENT_GROUPS + UNIT];
            const hc_values from = values_from(row_values(x, i), first);
            const bool finite = group_maxima(geometry, from, n, HC_ABSOLUTE, &segment, segment.maximum);
            if (from.doubles && !(largest_of(segment.maximum, n) < FLT_MAX) &&
                !is_legal(from.doubles, n * geometry->group))
                return row;
            group_powers(format, hc_round_up(n, UNIT), &segment, bytes);
            memcpy(scales + group, bytes, (size_t)n);
            encode_groups(geometry, from, 0, n, &segment, &range, encode_slices, step * geometry->group * 4, bits,
                          codes + first / 8 * bits);
            if (!finite)
                mark_groups(&segment, n, geometry->group, bits, scales + group, codes + first / 8 * bits);
        }
    }
    return HC_DONE;
}

HC_CHUNK_VALUES(by_table16, HC_BY_TABLE16)
HC_CHUNK_VALUES(by_int8, HC_BY_INT8)
HC_CHUNK_VALUES(by_e4m3, HC_BY_E4M3)
HC_CHUNK_VALUES(by_e5m2, HC_BY_E5M2)
HC_CHUNK_VALUES(by_e3m2, HC_BY_E3M2)
HC_CHUNK_VALUES(by_e2m3, HC_BY_E2M3)

static inline hc_chunk_values_fn *chunk_values_of(hc_element_kind kind) {
    switch (kind) {
    case HC_BY_INT8:
        return by_int8;
    case HC_BY_E4M3:
        return by_e4m3;
    case HC_BY_E5M2:
        return by_e5m2;
    case HC_BY_E3M2:
        return by_e3m2;
    case HC_BY_E2M3:
        return by_e2m3;
    default:
        return by_table16;
    }
}

static inline void load_elements(const hc_format *format, const hc_components *components, int64_t row,
                                 hc_elements *elements) {
    static const hc_element_kind kinds[] = {HC_BY_E4M3, HC_BY_E5M2, HC_BY_E3M2, HC_BY_E2M3, HC_BY_TABLE16, HC_BY_INT8};
    (void)components, (void)row;
    elements->kind = kinds[mx_element(format) - MX_FIRST_ELEMENT];
    elements->unscaled = false;
    signed_table(E2M1, elements->table);
}

static inline void load_scales(const hc_format *format, const hc_geometry *geometry, const hc_components *components,
                               int64_t row, int64_t first_group, int64_t n, hc_elements *elements) {
    const uint8_t *scales = (const uint8_t *)hc_part(components, HC_SCALES, row) + first_group;
    (void)format, (void)geometry;
    for (int64_t i = 0; i < n; i++)
        elements->scale[i] = mx_scale(scales[i]);
}

static int64_t integers(const hc_format *format, const hc_geometry *geometry, const hc_components *components,
                        const hc_tile *tile, hc_int_mode mode, const hc_int_tile *out) {
    (void)mode;
    return decode_integers(format, geometry, components, tile, mx_fraction_bits(format), out);
}

static inline hc_stored_group load_group(const hc_format *format, const hc_stored_row *row, int64_t group) {
    (void)format;
    return (hc_stored_group){mx_scale(row->scales[group]), 1};
}

HC_STORED_BYTES(stored_int8, HC_BY_INT8)
HC_STORED_BYTES(stored_e4m3, HC_BY_E4M3)
HC_STORED_BYTES(stored_e5m2, HC_BY_E5M2)

static int64_t values(const hc_format *format, const hc_geometry *geometry, const hc_components *components,
                      const hc_tile *tile, float *to, int64_t ld) {
    float table[16];
    if (!reads_stored(format, geometry, tile))
        return decode_values(format, geometry, components, tile, to, ld);
    if (format->bits == 8) {
        hc_stored_fn *stored = mx_element(format) == MX_INT8              ? stored_int8
                               : mx_element(format) == HC_TYPE_FP8_E4M3FN ? stored_e4m3
                                                                          : stored_e5m2;
        return stored(format, geometry, components, tile, true, to, ld);
    }
    signed_table(E2M1, table);
    return stored_nibbles(format, geometry, components, tile, table, HC_BY_TABLE16, true, to, ld);
}

HC_DOUBLES(decode_codes, false)

HC_SIMD_TABLE(mx, .encode = encode, .values = values, .integers = integers, .doubles = doubles, .codes = decode_codes);
