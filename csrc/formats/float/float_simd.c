/* Small floats, many values at a time; formats/float/float.c is the definition. */
#include "formats/float/float.h"
#include "formats/simd/decode_elements.h"
#include "formats/simd/doubles.h"
#include "formats/simd/encode_rows.h"
#include "formats/simd/observe_rows.h"
#include "formats/simd/stored_rows.h"

#include <float.h>

/* Types from here on have 8 bits and fewer. */
enum { FIRST_SMALL = HC_TYPE_FP8_E4M3FN };

HC_SLICE(e4m3_exact, HC_CODES_E4M3 | HC_EXACT)
HC_SLICE(e5m2_exact, HC_CODES_E5M2 | HC_EXACT)
HC_SLICE(e3m2_exact, HC_CODES_E3M2 | HC_EXACT)
HC_SLICE(e2m3_exact, HC_CODES_E2M3 | HC_EXACT)
HC_SLICE(e2m1_exact, HC_CODES_E2M1 | HC_EXACT)
HC_SLICE(e4m3_slice, HC_CODES_E4M3)
HC_SLICE(e5m2_slice, HC_CODES_E5M2)
HC_SLICE(e3m2_slice, HC_CODES_E3M2)
HC_SLICE(e2m3_slice, HC_CODES_E2M3)
HC_SLICE(e2m1_slice, HC_CODES_E2M1)

/* Types of 4 to 8 bits. Larger values get the code of infinity or NaN if the type has one. */
typedef struct {
    hc_slice_fn *exact, *scaled;
    float largest, beyond;
    uint8_t nan; /* 0: none */
} hc_small_type;

static inline const hc_small_type *small_type(const hc_format *format) {
    static const hc_small_type types[] = {
        {e4m3_exact, e4m3_slice, 448, 480, 0x7f}, {e5m2_exact, e5m2_slice, 57344, 65536, 0x7e},
        {e3m2_exact, e3m2_slice, 28, 28, 0},      {e2m3_exact, e2m3_slice, 7.5f, 7.5f, 0},
        {e2m1_exact, e2m1_slice, 6, 6, 0},
    };
    return &types[float_type(format) - FIRST_SMALL];
}

/* Codes of n values whose largest magnitude is not finite; false if one of them is invalid. */
static __attribute__((noinline)) bool special_codes(const float *x, int64_t n, const hc_small_type *type, bool saturate,
                                                    uint8_t *codes) {
    for (int64_t i = 0; i < n; i++) {
        const uint32_t bits = hc_f32_bits(x[i]), magnitude = bits & 0x7fffffff;
        if (magnitude < 0x7f800000)
            continue;
        if (magnitude == 0x7f800000 ? !saturate && !type->nan : !type->nan)
            return false;
        if (magnitude > 0x7f800000) /* only types of 8 bits get here */
            codes[i] = (uint8_t)(bits >> 24 & 0x80) | type->nan;
    }
    return true;
}

static inline bool encode_unscaled(const hc_format *format, hc_values x, int64_t n, int64_t ahead, hc_segment *segment,
                                   uint8_t *out) {
    const hc_small_type *type = small_type(format);
    const bool saturate = float_saturates(format);
    const hc_code_range range = {.limit = saturate ? type->largest : type->beyond};
    segment->reciprocal[0] = 1;
    segment->divide = false;
    for (int64_t first = 0; first < n; first += SLICE) {
        const int64_t count = hc_min(SLICE, n - first);
        uint8_t *to = out + first / 8 * format->bits;
        const float *from = round_values(values_from(x, first), count, &segment->floats);
        const float absmax = simd_maximum(from, count, HC_ABSOLUTE);
        type->exact(from, count, 0, segment, &range, x.doubles ? 0 : ahead);
        pack_bytes(segment->codes, count, format->bits, to);
        if (!is_finite(absmax) && !special_codes(from, count, type, saturate, to))
            return false;
    }
    return true;
}

static inline bool encode_scaled(const hc_format *format, const hc_geometry *geometry, hc_values x,
                                 const float *threshold, const hc_encode_state *state, hc_segment *segment,
                                 uint8_t *scale, uint8_t *out) {
    const hc_small_type *type = small_type(format);
    const hc_code_range range = {.limit = float_saturates(format) ? type->largest : type->beyond};
    float found = state->coarse;
    if (scale) {
        const float absmax = values_maximum(x, geometry->padded, HC_ABSOLUTE, &segment->floats);
        if (!is_finite(absmax))
            return false;
        found = (threshold ? *threshold : absmax) / type->largest;
        hc_store_f32(scale, found);
    }
    if (found == 0) { /* minus zeros too */
        memset(out, 0, (size_t)(geometry->padded * format->bits + 7) / 8);
        return true;
    }
    segment->multiple[0] = found;
    invert_scales(segment->multiple, 1, segment->reciprocal, segment);
    encode_groups(geometry, x, 0, 1, segment, &range, type->scaled, scale ? 4 * geometry->padded : 4 * SEGMENT_VALUES,
                  format->bits, out);
    return true;
}

/* Rows of groups with a scale each. */
static inline int64_t encode_grouped(const hc_format *format, const hc_geometry *geometry, const hc_float_rows *x,
                                     const float *thresholds, const hc_components *out) {
    const hc_small_type *type = small_type(format);
    const hc_code_range range = {.limit = float_saturates(format) ? type->largest : type->beyond};
    if (!serves(geometry))
        return HC_DECLINED;
    const int64_t step = segment_groups(geometry);
    hc_segment segment;
    init_segment(geometry, &segment);
    set_least(x, &segment);
    segment.factor = 1;
    for (int64_t i = 0; i < x->rows; i++) {
        const int64_t row = x->first_row + i;
        uint8_t *scales = hc_part(out, HC_SCALES, row), *codes = hc_part(out, HC_CODES, row);
        for (int64_t group = 0; group < geometry->groups; group += step) {
            const int64_t n = hc_min(step, geometry->groups - group), first = group * geometry->group;
            const int64_t whole = hc_round_up(n, UNIT);
            const hc_values from = values_from(row_values(x, i), first);
            if (!group_maxima(geometry, from, n, HC_ABSOLUTE, &segment, segment.maximum))
                return row;
            for (int64_t j = 0; j < n; j++) {
                const float *threshold = thresholds ? thresholds + i * geometry->groups + group + j : NULL;
                segment.multiple[j] = (threshold ? *threshold : segment.maximum[j]) / type->largest;
            }
            for (int64_t j = n; j < whole; j++)
                segment.multiple[j] = 0;
            memcpy(scales + group * 4, segment.multiple, (size_t)n * sizeof *segment.multiple);
            invert_scales(segment.multiple, whole, segment.reciprocal, &segment);
            encode_groups(geometry, from, 0, n, &segment, &range, type->scaled, step * geometry->group * 4,
                          format->bits, codes + first / 8 * format->bits);
            clear_zero_groups(geometry, &segment, n, format->bits, codes + first / 8 * format->bits);
        }
    }
    return HC_DONE;
}

/* Rounds magnitudes of float32 to their upper bits; `drop` bits are removed. */
static inline uint32_t rounded_bits(uint32_t bits, int drop, uint32_t top) {
    const uint32_t magnitude = bits & 0x7fffffff;
    const uint32_t rounded = magnitude + ((1u << (drop - 1)) - 1) + (magnitude >> drop & 1);
    const uint32_t kept = rounded & ~((1u << drop) - 1), cut = kept > top ? top : kept;
    return (bits & 0x80000000u) | (magnitude > 0x7f800000 ? 0x7fc00000u : cut);
}

/* Codes of bfloat16. If all magnitudes are at most `plain`, no value is NaN or cut, and rounding keeps the sign in
 * place. */
static inline void bfloat_codes(const float *restrict x, int64_t n, bool saturate, uint16_t *restrict codes) {
    const int32_t plain = saturate ? 0x7f7f7fff : 0x7f800000;
    int32_t most = 0;
    for (int64_t i = 0; i < n; i++) {
        const uint32_t bits = hc_f32_bits(x[i]);
        const int32_t magnitude = (int32_t)(bits & 0x7fffffff);
        most = magnitude > most ? magnitude : most;
        codes[i] = (uint16_t)((bits + 0x7fff + (bits >> 16 & 1)) >> 16);
    }
    for (int64_t i = 0; i < n && most > plain; i++)
        codes[i] = (uint16_t)(rounded_bits(hc_f32_bits(x[i]), 16, saturate ? 0x7f7f0000 : 0x7f800000) >> 16);
}

/* Types of 16 and 32 bits without a scale; every value is valid. */
static __attribute__((noinline)) void encode_wide(const float *x, int64_t n, int type, bool saturate, uint8_t *out) {
    const float limit = saturate ? 65504.0f : INFINITY; /* of float16 */
    enum { PART = SLICE / 4 };
    for (int64_t first = 0; first < n; first += PART) {
        const int64_t count = hc_min(PART, n - first);
        for (int64_t i = 0; i < count; i += 16)
            __builtin_prefetch((const char *)((uintptr_t)(x + first + i) + 4 * SLICE), 0, 3);
        if (type == HC_TYPE_BF16) {
            uint16_t codes[PART];
            bfloat_codes(x + first, count, saturate, codes);
            memcpy(out + 2 * first, codes, (size_t)count * sizeof *codes);
        } else if (type == HC_TYPE_FP16) {
            int64_t i = count / 8 * 8;
            if (!simd_half_codes_of_numbers(x + first, i, limit, out + 2 * first))
                for (int64_t j = 0; j < i; j += 8)
                    simd_half_codes(x + first + j, limit, out + 2 * (first + j));
            if (i < count) {
                float last[8] = {0};
                uint8_t codes[16];
                memcpy(last, x + first + i, (size_t)(count - i) * sizeof *last);
                simd_half_codes(last, limit, codes);
                memcpy(out + 2 * (first + i), codes, (size_t)(count - i) * 2);
            }
        } else {
            uint32_t codes[PART];
            for (int64_t i = 0; i < count; i++) {
                const uint32_t bits = hc_f32_bits(x[first + i]);
                codes[i] = type == HC_TYPE_TF32 ? rounded_bits(bits, 13, saturate ? 0x7f7fe000 : 0x7f800000)
                                                : bits | ((bits & 0x7fffffff) > 0x7f800000 ? 0x400000 : 0);
            }
            memcpy(out + 4 * first, codes, (size_t)count * sizeof *codes);
        }
    }
}

/* Values of a row as float32 for encode_wide. fp32 keeps all bits, so it needs float64 rounded to nearest. Finite values
 * that saturate are not infinite. */
static __attribute__((noinline)) void wide_doubles(const double *x, int64_t n, int type, bool saturate,
                                                   hc_floats *floats, uint8_t *out) {
    const hc_values values = {.doubles = x};
    for (int64_t first = 0; first < n; first += SLICE) {
        const int64_t count = hc_min(SLICE, n - first);
        round_values(values_from(values, first), count, floats);
        for (int64_t i = 0; type == HC_TYPE_FP32 && saturate && i < count; i++)
            if (isinf(floats->rounded[i]) && !isinf(x[first + i]))
                floats->rounded[i] = x[first + i] > 0 ? FLT_MAX : -FLT_MAX;
        encode_wide(floats->rounded, count, type, saturate,
                    out + first * (type == HC_TYPE_FP32 || type == HC_TYPE_TF32 ? 4 : 2));
    }
    floats->from = NULL; /* they may have been changed */
}

static int64_t encode(const hc_format *format, const hc_geometry *geometry, const hc_encode_state *state,
                      const hc_float_rows *x, const float *thresholds, const hc_components *out) {
    const int type = float_type(format), scaling = float_scaling(format);
    const bool small = type >= FIRST_SMALL;
    if (small && scaling == FLOAT_GROUP_SCALED)
        return encode_grouped(format, geometry, x, thresholds, out);
    if (geometry->padded == 0 || geometry->groups != 1 || (!small && scaling != FLOAT_UNSCALED) ||
        scaling == FLOAT_GROUP_SCALED)
        return HC_DECLINED;
    hc_segment segment;
    init_segment(geometry, &segment);
    set_least(x, &segment);
    segment.factor = 1;
    if (scaling == FLOAT_UNSCALED && type != HC_TYPE_FP32)
        segment.floats.rounding = HC_ODD;
    if (scaling == FLOAT_TENSOR_SCALED && x->first_row == 0)
        hc_store_f32(hc_part(out, HC_COARSE, 0), state->coarse);
    for (int64_t i = 0; i < x->rows; i++) {
        const int64_t row = x->first_row + i;
        const hc_values from = row_values(x, i);
        uint8_t *codes = hc_part(out, HC_CODES, row);
        bool legal = true;
        if (!small && from.doubles)
            wide_doubles(from.doubles, geometry->padded, type, float_saturates(format), &segment.floats, codes);
        else if (!small)
            encode_wide(from.singles, geometry->padded, type, float_saturates(format), codes);
        else if (scaling == FLOAT_UNSCALED)
            legal = encode_unscaled(format, from, geometry->padded, 4 * SEGMENT_VALUES, &segment, codes);
        else
            legal = encode_scaled(format, geometry, from, thresholds ? thresholds + i : NULL, state, &segment,
                                  scaling == FLOAT_ROW_SCALED ? hc_part(out, HC_SCALES, row) : NULL, codes);
        if (!legal)
            return row;
    }
    return HC_DONE;
}

HC_CHUNK_VALUES(by_table16, HC_BY_TABLE16)
HC_CHUNK_VALUES(by_e4m3, HC_BY_E4M3)
HC_CHUNK_VALUES(by_e5m2, HC_BY_E5M2)
HC_CHUNK_VALUES(by_e3m2, HC_BY_E3M2)
HC_CHUNK_VALUES(by_e2m3, HC_BY_E2M3)

static inline hc_chunk_values_fn *chunk_values_of(hc_element_kind kind) {
    switch (kind) {
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
    static const hc_element_kind kinds[] = {HC_BY_E4M3, HC_BY_E5M2, HC_BY_E3M2, HC_BY_E2M3, HC_BY_TABLE16};
    (void)components, (void)row;
    elements->kind = kinds[float_type(format) - FIRST_SMALL];
    elements->unscaled = float_scaling(format) == FLOAT_UNSCALED;
    signed_table(E2M1, elements->table);
}

static inline void load_scales(const hc_format *format, const hc_geometry *geometry, const hc_components *components,
                               int64_t row, int64_t first_group, int64_t n, hc_elements *elements) {
    (void)geometry;
    if (float_has_scales(format))
        memcpy(elements->scale, (const float *)hc_part(components, HC_SCALES, row) + first_group,
               (size_t)n * sizeof *elements->scale);
    else if (!elements->unscaled)
        elements->scale[0] = hc_load_f32(hc_part(components, HC_COARSE, row));
}

/* NaN loses its payload and keeps its sign. */
static inline float plain_nan(uint32_t bits) {
    return hc_f32_from_bits((bits & 0x7fffffff) > 0x7f800000 ? (bits & 0x80000000) | 0x7fc00000 : bits);
}

/* n values of 16 or 32 bits without a scale. NaN loses its payload, except in fp32. */
static __attribute__((noinline)) void wide_values(const uint8_t *restrict from, int64_t n, int type,
                                                  float *restrict values) {
    if (n == 0) /* a row without columns may have no memory */
        return;
    if (type == HC_TYPE_FP32) {
        memcpy(values, from, (size_t)n * sizeof *values);
        return;
    }
    int64_t i = 0;
    if (type == HC_TYPE_FP16)
        for (; i + 8 <= n; i += 8) {
            float eight[8];
            simd_from_halves(from + 2 * i, eight);
            for (int j = 0; j < 8; j++)
                values[i + j] = plain_nan(hc_f32_bits(eight[j]));
        }
    if (type == HC_TYPE_FP16)
        for (; i < n; i++)
            values[i] = plain_nan(hc_f32_bits(hc_f16_to_f32(hc_load_u16(from + 2 * i))));
    if (type == HC_TYPE_BF16)
        for (; i < n; i++)
            values[i] = plain_nan((uint32_t)hc_load_u16(from + 2 * i) << 16);
    if (type == HC_TYPE_TF32)
        for (; i < n; i++)
            values[i] = plain_nan(hc_f32_bits(hc_load_f32(from + 4 * i)) & ~0x1fffu);
}

static inline int64_t wide_rows(const hc_format *format, const hc_components *components, const hc_tile *tile,
                                float *values, int64_t ld) {
    const int64_t size = format->bits / 8;
    if (float_scaling(format) != FLOAT_UNSCALED)
        return HC_DECLINED;
    for (int64_t i = 0; i < tile->rows; i++)
        wide_values((const uint8_t *)hc_part(components, HC_CODES, tile->first_row + i) + tile->first_column * size,
                    tile->columns, float_type(format), values + i * ld);
    return HC_DONE;
}

static inline hc_stored_group load_group(const hc_format *format, const hc_stored_row *row, int64_t group) {
    return (hc_stored_group){hc_load_f32(float_has_scales(format) ? row->scales + 4 * group : row->coarse), 1};
}

HC_STORED_BYTES(stored_e4m3, HC_BY_E4M3)
HC_STORED_BYTES(stored_e5m2, HC_BY_E5M2)

static int64_t small_values(const hc_format *format, const hc_geometry *geometry, const hc_components *components,
                            const hc_tile *tile, float *values, int64_t ld) {
    const bool scaled = float_scaling(format) != FLOAT_UNSCALED;
    float table[16];
    if (format->bits == 8) {
        hc_stored_fn *stored = float_type(format) == HC_TYPE_FP8_E4M3FN ? stored_e4m3 : stored_e5m2;
        return stored(format, geometry, components, tile, scaled, values, ld);
    }
    signed_table(E2M1, table);
    return scaled ? stored_nibbles(format, geometry, components, tile, table, HC_BY_TABLE16, true, values, ld)
                  : stored_nibbles(format, geometry, components, tile, table, HC_BY_TABLE16, false, values, ld);
}

static int64_t float_values(const hc_format *format, const hc_geometry *geometry, const hc_components *components,
                            const hc_tile *tile, float *values, int64_t ld) {
    if (float_type(format) < FIRST_SMALL)
        return wide_rows(format, components, tile, values, ld);
    if (reads_stored(format, geometry, tile))
        return small_values(format, geometry, components, tile, values, ld);
    return decode_values(format, geometry, components, tile, values, ld);
}

static int64_t float_codes(const hc_format *format, const hc_geometry *geometry, const hc_components *components,
                           const hc_tile *tile, const hc_code_tile *out) {
    if (float_type(format) >= FIRST_SMALL)
        return decode_codes(format, geometry, components, tile, out);
    const int64_t done = wide_rows(format, components, tile, out->codes, out->codes_ld);
    for (int64_t i = 0; done == HC_DONE && i < tile->rows; i++)
        out->row_scale[i] = 1;
    return done;
}

HC_DOUBLES(float_codes, false)

HC_SIMD_TABLE(float, .observe = observe_maximum, .encode = encode, .values = float_values, .doubles = doubles,
              .codes = float_codes);
