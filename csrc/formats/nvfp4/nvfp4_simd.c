/* NVFP4, many values at a time; formats/nvfp4/nvfp4.c is the definition. */
#include "formats/nvfp4/nvfp4.h"
#include "formats/simd/decode_elements.h"
#include "formats/simd/doubles.h"
#include "formats/simd/encode_rows.h"
#include "formats/simd/observe_rows.h"

#include <float.h>

HC_SLICE(e2m1_slice, HC_CODES_E2M1)

enum { MOST_GROUPS = SEGMENT_GROUPS - 4 * UNIT };

/* One candidate for the groups of a segment: absmax / largest as the scale before rounding. */
typedef struct {
    float largest, scale[MOST_GROUPS];
    uint8_t bytes[SEGMENT_GROUPS + 4 * UNIT], codes[MOST_GROUPS * NVFP4_GROUP / 2];
} hc_candidate;

/* Bytes of `whole` groups, and the multiples of p that the bytes represent. */
static inline void group_bytes(float p, int64_t whole, hc_segment *segment, hc_candidate *candidate) {
    static const uint8_t same[4] = {0};
    const float one = 1;
    const hc_code_range range = {.limit = 448};
    float *scale = segment->multiple;
    for (int64_t i = 0; i < whole; i++)
        scale[i] = segment->maximum[i] / candidate->largest / p;
    for (int64_t i = whole; i < hc_round_up(whole, 4 * UNIT); i++)
        scale[i] = 0;
    for (int64_t i = 0; i < whole; i += 4 * UNIT)
        simd_codes(scale + i, same, &one, segment->zero, &range, 0, HC_CODES_E4M3 | HC_EXACT, candidate->bytes + i);
    for (int64_t i = 0; i < whole; i += 8)
        simd_scaled_e4m3(candidate->bytes + i, p, scale + i);
    segment->factor = 1;
    invert_scales(scale, whole, segment->reciprocal, segment);
}

/* Bytes and codes of n groups; `ahead`: see encode_groups. */
static inline void encode_candidate(const hc_geometry *geometry, hc_values x, int64_t n, float p, int64_t ahead,
                                    hc_segment *segment, hc_candidate *candidate, uint8_t *codes) {
    const hc_code_range range = {.limit = 6};
    group_bytes(p, hc_round_up(n, UNIT), segment, candidate);
    encode_groups(geometry, x, 0, n, segment, &range, e2m1_slice, ahead, NVFP4_BITS, codes);
    clear_zero_groups(geometry, segment, n, NVFP4_BITS, codes); /* minus zeros too */
}

/* The decoded value of each code, saturating. */
static inline void decoded_values(const float *elements, float scale, float *values) {
    for (int i = 0; i < 16; i++) {
        const float value = elements[i] * scale, low = value > -FLT_MAX ? value : -FLT_MAX;
        values[i] = low < FLT_MAX ? low : FLT_MAX;
    }
}

static inline double squared_error(hc_values x, int64_t j, const float *values, int code) {
    const double error = (x.doubles ? x.doubles[j] : (double)x.singles[j]) - (double)values[code];
    return error * error;
}

/* True if the codes b have a smaller sum of squared errors than a. Both sums are in the order of the definition. */
static inline bool is_smaller(hc_values x, int64_t n, const uint8_t *a, const float *values_a, const uint8_t *b,
                              const float *values_b) {
    double sum_a = 0, sum_b = 0;
    for (int64_t j = 0; j < n; j += 2) {
        sum_a += squared_error(x, j, values_a, a[j / 2] & 15);
        sum_b += squared_error(x, j, values_b, b[j / 2] & 15);
        if (j + 1 == n)
            break;
        sum_a += squared_error(x, j + 1, values_a, a[j / 2] >> 4);
        sum_b += squared_error(x, j + 1, values_b, b[j / 2] >> 4);
    }
    return sum_b < sum_a;
}

/* Replaces the groups of `codes` and `bytes` for which the other candidate has the smaller error. */
static inline void choose_smaller(const hc_geometry *geometry, hc_values x, int64_t n, const float *scale,
                                  const hc_segment *segment, const hc_candidate *other, uint8_t *bytes,
                                  uint8_t *codes) {
    const int64_t length = geometry->group, size = hc_row_bytes(length, NVFP4_BITS);
    float elements[16], values[16], others[16];
    signed_table(E2M1, elements);
    for (int64_t i = 0; i < n; i++, codes += size) {
        const uint8_t *found = other->codes + i * size;
        const hc_values group = values_from(x, i * length);
        decoded_values(elements, scale[i], values);
        decoded_values(elements, segment->multiple[i], others);
        if (length == NVFP4_GROUP ? is_smaller(group, NVFP4_GROUP, codes, values, found, others)
                                  : is_smaller(group, length, codes, values, found, others)) {
            bytes[i] = other->bytes[i];
            memcpy(codes, found, (size_t)size);
        }
    }
}

static int64_t encode(const hc_format *format, const hc_geometry *geometry, const hc_encode_state *state,
                      const hc_float_rows *x, const float *thresholds, const hc_components *out) {
    (void)thresholds;
    if (!serves(geometry))
        return HC_DECLINED;
    const int64_t step = hc_min(segment_groups(geometry), MOST_GROUPS), ahead = step * geometry->group * 4;
    hc_candidate six = {.largest = 6}, four = {.largest = 4};
    hc_segment segment;
    init_segment(geometry, &segment);
    set_least(x, &segment);
    if (x->first_row == 0)
        hc_store_f32(hc_part(out, HC_COARSE, 0), state->coarse);
    for (int64_t i = 0; i < x->rows; i++) {
        const int64_t row = x->first_row + i;
        uint8_t *scales = hc_part(out, HC_SCALES, row), *codes = hc_part(out, HC_CODES, row);
        for (int64_t group = 0; group < geometry->groups; group += step) {
            const int64_t n = hc_min(step, geometry->groups - group), first = group * geometry->group;
            const hc_values from = values_from(row_values(x, i), first);
            if (!group_maxima(geometry, from, n, HC_ABSOLUTE, &segment, segment.maximum))
                return row;
            encode_candidate(geometry, from, n, state->coarse, ahead, &segment, &six, codes + first / 2);
            if (nvfp4_is_four_over_six(format)) {
                memcpy(six.scale, segment.multiple, (size_t)n * sizeof *six.scale);
                encode_candidate(geometry, from, n, state->coarse, ahead, &segment, &four, four.codes);
                choose_smaller(geometry, from, n, six.scale, &segment, &four, six.bytes, codes + first / 2);
            }
            memcpy(scales + group, six.bytes, (size_t)n);
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

HC_DOUBLES(decode_codes, false)

HC_SIMD_TABLE(nvfp4, .observe = observe_maximum, .encode = encode, .values = decode_values, .integers = integers,
              .doubles = doubles, .codes = decode_codes);
