/* NF4, many values at a time; formats/nf4/nf4.c is the definition. */
#include "formats/nf4/nf4.h"
#include "formats/simd/decode_elements.h"
#include "formats/simd/doubles.h"
#include "formats/simd/encode_rows.h"
#include "formats/simd/stored_rows.h"

HC_SLICE(nf4_slice, HC_CODES_LEVELS)

/* Fills hc_code_range.levels. An interval without a midpoint gets 2, which exceeds every quotient. */
static inline void fill_levels(float table[32]) {
    for (int i = -16; i < 16; i++) {
        float found = 2;
        uint32_t code = 0;
        for (int j = 0; j + 1 < NF4_LEVELS; j++) {
            const float midpoint = (NF4_LEVEL[j] + NF4_LEVEL[j + 1]) / 2;
            const float apart = midpoint * HC_LEVEL_STEPS - (float)i;
            code += apart < -0.5f;
            found = fabsf(apart) < 0.5f ? midpoint : found;
        }
        table[i & 31] = hc_f32_from_bits((hc_f32_bits(found) & ~15u) | code);
    }
}

/* Double quantization: the 8-bit scales of a row. state->shared has the scales of the whole array, then the second
 * scales, then the mean of the scales. */
static inline void double_codes(const hc_geometry *geometry, const hc_encode_state *state, int64_t first,
                                int8_t *codes) {
    const int64_t n = geometry->rows * geometry->groups;
    const float *coarse = state->shared + n, mean = coarse[hc_ceil_div(n, NF4_BLOCK)];
    for (int64_t group = 0; group < geometry->groups; group++) {
        const double t = (double)coarse[(first + group) / NF4_BLOCK];
        double quotient = (double)(state->shared[first + group] - mean) / t;
        quotient = quotient > 127 ? 127 : quotient;
        quotient = quotient > -127 ? quotient : -127;
        codes[group] = (int8_t)(t == 0 ? 0 : (int32_t)((quotient + 0x1.8p52) - 0x1.8p52));
    }
}

static int64_t encode(const hc_format *format, const hc_geometry *geometry, const hc_encode_state *state,
                      const hc_float_rows *x, const float *thresholds, const hc_components *out) {
    const bool doubly = nf4_is_double(format);
    if (!serves(geometry))
        return HC_DECLINED;
    const int64_t step = segment_groups(geometry);
    float levels[32];
    double midpoints[NF4_LEVELS - 1];
    fill_levels(levels);
    hc_midpoints(NF4_LEVEL, NF4_LEVELS, midpoints);
    const hc_code_range range = {.levels = levels, .midpoints = midpoints};
    hc_segment segment;
    init_segment(geometry, &segment);
    segment.factor = 1;
    for (int64_t i = 0; i < x->rows; i++) {
        const int64_t row = x->first_row + i;
        uint8_t *scales = hc_part(out, HC_SCALES, row), *codes = hc_part(out, HC_CODES, row);
        for (int64_t group = 0; group < geometry->groups; group += step) {
            const int64_t n = hc_min(step, geometry->groups - group), first = group * geometry->group;
            const hc_values from = values_from(row_values(x, i), first);
            float *scale = segment.multiple;
            if (!group_maxima(geometry, from, n, HC_ABSOLUTE, &segment, segment.maximum))
                return row;
            memcpy(scale, segment.maximum, (size_t)hc_round_up(n, UNIT) * sizeof *scale);
            if (thresholds)
                memcpy(scale, thresholds + i * geometry->groups + group, (size_t)n * sizeof *scale);
            if (!doubly)
                memcpy(scales + group * 4, scale, (size_t)n * sizeof *scale);
            invert_scales(scale, hc_round_up(n, UNIT), segment.reciprocal, &segment);
            encode_groups(geometry, from, 0, n, &segment, &range, nf4_slice, step * geometry->group * 4, 4,
                          codes + first / 2);
            if (!doubly) /* with double quantization zeros keep the code of level 0: their scale may not decode to 0 */
                clear_zero_groups(geometry, &segment, n, 4, codes + first / 2);
        }
        if (doubly)
            double_codes(geometry, state, (out->first_row + row) * geometry->groups, (int8_t *)scales);
    }
    return HC_DONE;
}

HC_CHUNK_VALUES(by_levels16, HC_BY_LEVELS16)

static inline hc_chunk_values_fn *chunk_values_of(hc_element_kind kind) {
    (void)kind;
    return by_levels16;
}

static inline void load_elements(const hc_format *format, const hc_components *components, int64_t row,
                                 hc_elements *elements) {
    (void)format, (void)components, (void)row;
    elements->kind = HC_BY_LEVELS16;
    elements->unscaled = false;
    memcpy(elements->table, NF4_LEVEL, sizeof NF4_LEVEL);
}

static inline void load_scales(const hc_format *format, const hc_geometry *geometry, const hc_components *components,
                               int64_t row, int64_t first_group, int64_t n, hc_elements *elements) {
    if (!nf4_is_double(format)) {
        memcpy(elements->scale, (const float *)hc_part(components, HC_SCALES, row) + first_group,
               (size_t)n * sizeof *elements->scale);
        return;
    }
    const int8_t *codes = (const int8_t *)hc_part(components, HC_SCALES, row) + first_group;
    const float *coarse = hc_part(components, HC_COARSE, 0);
    const float mean = hc_load_f32(hc_part(components, HC_MEAN, 0));
    const int64_t first = (components->first_row + row) * geometry->groups + first_group;
    for (int64_t i = 0; i < n; i++)
        elements->scale[i] = nf4_double_scale(codes[i], coarse[(first + i) / NF4_BLOCK], mean);
}

static inline hc_stored_group load_group(const hc_format *format, const hc_stored_row *row, int64_t group) {
    (void)format;
    return (hc_stored_group){hc_load_f32(row->scales + 4 * group), 1};
}

static int64_t values(const hc_format *format, const hc_geometry *geometry, const hc_components *components,
                      const hc_tile *tile, float *to, int64_t ld) {
    if (nf4_is_double(format) || !reads_stored(format, geometry, tile))
        return decode_values(format, geometry, components, tile, to, ld);
    return stored_nibbles(format, geometry, components, tile, NF4_LEVEL, HC_BY_LEVELS16, true, to, ld);
}

HC_DOUBLES(decode_codes, true)

HC_SIMD_TABLE(nf4, .encode = encode, .values = values, .doubles = doubles, .codes = decode_codes);
