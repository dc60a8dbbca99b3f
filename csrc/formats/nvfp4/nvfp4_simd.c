/* NVFP4, many values at a time; formats/nvfp4/nvfp4.c is the definition. */
#include "formats/nvfp4/nvfp4.h"
#include "formats/simd/decode_elements.h"
#include "formats/simd/encode_rows.h"
#include "formats/simd/observe_rows.h"

HC_SLICE(e2m1_slice, HC_CODES_E2M1)

/* Bytes of `whole` groups, and the multiples of p that the bytes represent. */
static inline void group_bytes(float p, int64_t whole, hc_segment *segment, uint8_t *bytes) {
    static const uint8_t same[4] = {0};
    const float one = 1;
    const hc_code_range range = {.limit = 448};
    float *scale = segment->multiple;
    for (int64_t i = 0; i < whole; i++)
        scale[i] = segment->maximum[i] / 6.0f / p;
    for (int64_t i = whole; i < hc_round_up(whole, 4 * UNIT); i++)
        scale[i] = 0;
    for (int64_t i = 0; i < whole; i += 4 * UNIT)
        simd_codes(scale + i, same, &one, segment->zero, &range, 0, HC_CODES_E4M3 | HC_EXACT, bytes + i);
    for (int64_t i = 0; i < whole; i += 8)
        simd_scaled_e4m3(bytes + i, p, scale + i);
    segment->factor = 1;
    invert_scales(scale, whole, segment->reciprocal, segment);
}

static int64_t encode(const hc_format *format, const hc_geometry *geometry, const hc_encode_state *state,
                      const hc_float_rows *x, const float *thresholds, const hc_components *out) {
    (void)thresholds;
    if (!serves(geometry, x) || nvfp4_is_four_over_six(format))
        return HC_DECLINED;
    const hc_code_range range = {.limit = 6};
    const int64_t step = hc_min(segment_groups(geometry), SEGMENT_GROUPS - 4 * UNIT);
    hc_segment segment;
    init_segment(geometry, &segment);
    if (x->first_row == 0)
        hc_store_f32(hc_part(out, HC_COARSE, 0), state->coarse);
    for (int64_t i = 0; i < x->rows; i++) {
        const int64_t row = x->first_row + i;
        const float *from = (const float *)x->data + i * x->row_stride;
        uint8_t *scales = hc_part(out, HC_SCALES, row), *codes = hc_part(out, HC_CODES, row);
        for (int64_t group = 0; group < geometry->groups; group += step) {
            const int64_t n = hc_min(step, geometry->groups - group), first = group * geometry->group;
            uint8_t bytes[SEGMENT_GROUPS + 4 * UNIT];
            if (!group_maxima(geometry, from + first, n, HC_ABSOLUTE, segment.maximum))
                return row;
            group_bytes(state->coarse, hc_round_up(n, UNIT), &segment, bytes);
            memcpy(scales + group, bytes, (size_t)n);
            encode_groups(geometry, from + first, 0, n, &segment, &range, e2m1_slice, step * geometry->group * 4, 4,
                          codes + first / 2);
            clear_zero_groups(geometry, &segment, n, 4, codes + first / 2); /* minus zeros too */
        }
    }
    return HC_DONE;
}

HC_CHUNK_VALUES(by_table16, HC_BY_TABLE16)

static inline hc_chunk_values_fn *chunk_values_of(hc_element_kind kind) {
    (void)kind;
    return by_table16;
}

static inline void load_elements(const hc_format *format, const hc_components *components, int64_t row,
                                 hc_elements *elements) {
    (void)format, (void)components, (void)row;
    elements->kind = HC_BY_TABLE16;
    elements->unscaled = false;
    signed_table(E2M1, elements->table);
}

static inline void load_scales(const hc_format *format, const hc_geometry *geometry, const hc_components *components,
                               int64_t row, int64_t first_group, int64_t n, hc_elements *elements) {
    const uint8_t *scales = (const uint8_t *)hc_part(components, HC_SCALES, row) + first_group;
    const float p = hc_load_f32(hc_part(components, HC_COARSE, row));
    uint8_t last[16] = {0};
    (void)format, (void)geometry;
    simd_elements(scales, n & ~(int64_t)15, HC_BY_E4M3, load_table16(elements->table), NULL, true, p, elements->scale);
    memcpy(last, scales + (n & ~(int64_t)15), (size_t)(n & 15));
    simd_elements(last, n & 15, HC_BY_E4M3, load_table16(elements->table), NULL, true, p,
                  elements->scale + (n & ~(int64_t)15));
}

static int64_t integers(const hc_format *format, const hc_geometry *geometry, const hc_components *components,
                        const hc_tile *tile, hc_int_mode mode, const hc_int_tile *out) {
    (void)mode;
    return decode_integers(format, geometry, components, tile, NVFP4_FRACTION_BITS, out);
}

HC_SIMD_TABLE(nvfp4, .observe = observe_maximum, .encode = encode, .values = decode_values, .integers = integers,
              .codes = decode_codes);
