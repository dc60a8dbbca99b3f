/* Integers with minima, many values at a time; formats/affine/affine.c is the definition. */
#include "formats/simd/doubles.h"
#include "formats/simd/encode_rows.h"
#include "formats/simd/unpack.h"

#include "formats/affine/affine.h"

static inline void affine_pack(const uint8_t *codes, int64_t n, int bits, uint8_t *out) {
    pack_bytes(codes, n, bits, out);
}

static int64_t encode(const hc_format *format, const hc_geometry *geometry, const hc_encode_state *state,
                      const hc_float_rows *x, const float *thresholds, const hc_components *out) {
    (void)state, (void)thresholds;
    return affine_encode(format, geometry, x, out);
}

/* Factors [first, first + n) of a row. */
static inline void load_factors(const hc_format *format, const hc_components *components, hc_component_id id,
                                int64_t row, int64_t first, int64_t n, float *out) {
    const uint8_t *from = hc_part(components, id, row);
    if (!affine_has_halves(format)) {
        memcpy(out, from + 4 * first, (size_t)n * sizeof *out);
        return;
    }
    int64_t i = 0;
    for (; i + 8 <= n; i += 8)
        simd_from_halves(from + 2 * (first + i), out + i);
    for (; i < n; i++)
        out[i] = hc_f16_to_f32(hc_load_u16(from + 2 * (first + i)));
}

static void row_minima(const hc_format *format, const hc_geometry *geometry, const hc_components *components,
                       int64_t row, float *out) {
    load_factors(format, components, HC_MINIMA, row, 0, geometry->groups, out);
}

typedef struct {
    float scales[CHUNK + 8], minima[CHUNK + 8];
    uint8_t codes[CHUNK + 64];
} hc_affine_chunk;

static inline void load_chunk(const hc_format *format, const hc_geometry *geometry, const hc_components *components,
                              const hc_chunk *at, hc_affine_chunk *chunk) {
    const int64_t n = (at->column + at->n - 1) / geometry->group + 1 - at->first_group;
    load_factors(format, components, HC_SCALES, at->row, at->first_group, n, chunk->scales);
    load_factors(format, components, HC_MINIMA, at->row, at->first_group, n, chunk->minima);
    unpack_codes(hc_part(components, HC_CODES, at->row), hc_row_bytes(geometry->padded, format->bits), at->column,
                 at->n, format->bits, false, chunk->codes);
}

/* With float16 factors, product and sum are exact in float64, so one rounding to float32 is enough. */
static inline void spread_halves(const uint8_t *restrict codes, int64_t n, float scale, float minimum,
                                 float *restrict to) {
    for (int64_t j = 0; j < n; j++)
        to[j] = scale * (float)codes[j] + minimum;
}

static inline void spread_floats(const uint8_t *restrict codes, int64_t n, double scale, double minimum,
                                 float *restrict to) {
    for (int64_t j = 0; j < n; j++)
        to[j] = hc_saturated(scale * codes[j] + minimum);
}

static int64_t decode_values(const hc_format *format, const hc_geometry *geometry, const hc_components *components,
                             const hc_tile *tile, float *values, int64_t ld) {
    hc_affine_chunk terms;
    for (int64_t i = 0; i < tile->rows; i++)
        HC_FOR_CHUNKS(i, terms) {
            float *to = values + i * ld + chunk.column - tile->first_column;
            for (int64_t g = 0, c = 0, end = hc_min(chunk.n, (chunk.first_group + 1) * geometry->group - chunk.column);
                 c < chunk.n; g++, c = end, end = hc_min(chunk.n, end + geometry->group)) {
                if (affine_has_halves(format))
                    spread_halves(terms.codes + c, end - c, terms.scales[g], terms.minima[g], to + c);
                else
                    spread_floats(terms.codes + c, end - c, (double)terms.scales[g], (double)terms.minima[g], to + c);
            }
        }
    return HC_DONE;
}

static int64_t doubles(const hc_format *format, const hc_geometry *geometry, const hc_components *components,
                       const hc_tile *tile, double *values, int64_t ld) {
    hc_affine_chunk terms;
    for (int64_t i = 0; i < tile->rows; i++)
        HC_FOR_CHUNKS(i, terms) {
            double *to = values + i * ld + chunk.column - tile->first_column;
            for (int64_t g = 0, c = 0, end = hc_min(chunk.n, (chunk.first_group + 1) * geometry->group - chunk.column);
                 c < chunk.n; g++, c = end, end = hc_min(chunk.n, end + geometry->group))
                spread_doubles(terms.codes + c, end - c, (double)terms.scales[g], (double)terms.minima[g], to + c);
        }
    return HC_DONE;
}

static int64_t decode_integers(const hc_format *format, const hc_geometry *geometry, const hc_components *components,
                               const hc_tile *tile, hc_int_mode mode, const hc_int_tile *out) {
    (void)mode;
    const int64_t first = tile->first_column / geometry->group;
    const int64_t groups = hc_ceil_div(tile->first_column + tile->columns, geometry->group) - first;
    if (tile->first_column % 8 != 0)
        return HC_DECLINED;
    for (int64_t i = 0; i < tile->rows; i++) {
        plain_integers(geometry, components, tile, i, format->bits, false, out);
        if (format->bits == 8)
            memset(out->limb[1] + i * out->ld, 0, (size_t)tile->columns);
        load_factors(format, components, HC_SCALES, tile->first_row + i, first, groups,
                     out->group_scale + i * out->groups_ld);
    }
    return HC_DONE;
}

static int64_t decode_codes(const hc_format *format, const hc_geometry *geometry, const hc_components *components,
                            const hc_tile *tile, const hc_code_tile *out) {
    for (int64_t i = 0; i < tile->rows; i++)
        out->row_scale[i] = 1.0f;
    return decode_values(format, geometry, components, tile, out->codes, out->codes_ld);
}

HC_SIMD_TABLE(affine, .encode = encode, .values = decode_values, .integers = decode_integers, .doubles = doubles,
              .codes = decode_codes, .minima = row_minima);
