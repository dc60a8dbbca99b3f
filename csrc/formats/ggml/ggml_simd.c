/* Blocks of ggml, many values at a time; formats/ggml/ggml.c is the definition. */
#include "formats/ggml/ggml.h"
#include "formats/simd/doubles.h"
#include "formats/simd/encode_rows.h"
#include "formats/simd/unpack.h"

#include "base/watch.h"
#define GGML_STOPS hc_stopping()
#include "formats/ggml/encode_blocks.h"

static inline void ggml_pack(const uint8_t *codes, int64_t n, int bits, uint8_t *out) {
    pack_bytes(codes, n, bits, out);
}

static int64_t encode(const hc_format *format, const hc_geometry *geometry, const hc_encode_state *state,
                      const hc_float_rows *x, const float *thresholds, const hc_components *out) {
    (void)thresholds;
    return ggml_encode(ggml_kind(format), geometry, x, state->weights, out);
}

/* A chunk of a row. Codes are signed bytes; unsigned codes of 5 bits and fewer are valid signed bytes as well. */
typedef struct {
    float scales[CHUNK / 16 + 16], minima[CHUNK / 16 + 16];
    const float *scale, *minimum; /* of its first group */
    uint8_t codes[CHUNK + 64];
} hc_ggml_chunk;

static inline void load_levels(uint8_t *codes, int64_t n) {
    static const int8_t levels[GGML_LEVELS] = {-127, -104, -83, -65, -49, -35, -22, -10,
                                               1,    13,   25,  38,  53,  69,  89,  113};
    simd_lookup16(codes, hc_round_up(n, 64), levels, (int8_t *)codes);
}

static inline void scale_bytes(const uint8_t *restrict codes, int64_t n, float scale, float *restrict to) {
    const int8_t *from = (const int8_t *)codes;
    int64_t j = 0;
    for (; j + 8 <= n; j += 8)
        simd_scaled_bytes(codes + j, scale, to + j);
    for (; j < n; j++)
        to[j] = scale * (float)from[j];
}

static inline void load_halves(const uint8_t *from, int64_t n, float *to) {
    int64_t i = 0;
    for (; i + 8 <= n; i += 8)
        simd_from_halves(from + 2 * i, to + i);
    for (; i < n; i++)
        to[i] = lanes_from_f16(hc_load_u16(from + 2 * i));
}

/* Scales or minima of groups [first, first + n) of a row: float16, or the number of the block times an integer, 8 at a
 * time. Then first is a multiple of 8, and up to 7 more are written. A negative product uses the negated number. */
static inline void load_factors(const hc_ggml_kind *kind, const hc_geometry *geometry, const hc_components *components,
                                int64_t row, hc_component_id id, int64_t first, int64_t n, float *out) {
    const uint8_t *from = hc_part(components, id, row);
    const int bits = kind->scale_bits;
    if (bits == 0) {
        load_halves(from + first * 2, n, out);
        return;
    }
    const uint8_t *coarse = hc_part(components, HC_COARSE, row);
    if (first % 16 == 0) {
        const int64_t block = first / (kind->block / kind->group) * (kind->has_minimum ? 4 : 2);
        const int64_t done = simd_block_factors(bits, kind->has_minimum, id == HC_MINIMA, from + first / 8 * bits,
                                                coarse + block, n & ~(int64_t)15, out);
        first += done;
        out += done;
        n -= done;
        if (n == 0)
            return;
    }
    coarse += id == HC_MINIMA ? 2 : 0;
    const uint8_t *const end = from + geometry->groups / 8 * bits;
    const int64_t stride = kind->has_minimum ? 4 : 2, per = kind->block / kind->group == 8 ? 0 : 1;
    from += first / 8 * bits;
    for (int64_t i = first / 8; i < (first + n + 7) / 8; i++, from += bits, out += 8) {
        uint64_t word = 0;
        if (end - from >= 8)
            memcpy(&word, from, 8);
        else
            memcpy(&word, from, bits == 6 ? 6 : 4); /* the last numbers: no byte after the row is read */
        const float d = lanes_from_f16(hc_load_u16(coarse + (i >> per) * stride));
        simd_scaled_numbers(word, bits, !kind->has_minimum, id == HC_MINIMA ? -d : d, out);
    }
}

static void row_scales(const hc_format *format, const hc_geometry *geometry, const hc_components *components,
                       int64_t row, float *out) {
    load_factors(ggml_kind(format), geometry, components, row, HC_SCALES, 0, geometry->groups, out);
}

static void row_minima(const hc_format *format, const hc_geometry *geometry, const hc_components *components,
                       int64_t row, float *out) {
    load_factors(ggml_kind(format), geometry, components, row, HC_MINIMA, 0, geometry->groups, out);
}

static inline void load_chunk(const hc_format *format, const hc_geometry *geometry, const hc_components *components,
                              const hc_chunk *at, hc_ggml_chunk *chunk) {
    const hc_ggml_kind *kind = ggml_kind(format);
    const int64_t first = at->first_group, n = (at->column + at->n - 1) / kind->group + 1 - first;
    const int64_t skip = kind->scale_bits ? first % 8 : 0;
    chunk->scale = chunk->scales + skip;
    load_factors(kind, geometry, components, at->row, HC_SCALES, first - skip, n + skip, chunk->scales);
    chunk->minimum = chunk->minima + skip;
    if (kind->has_minimum)
        load_factors(kind, geometry, components, at->row, HC_MINIMA, first - skip, n + skip, chunk->minima);
    unpack_codes(hc_part(components, HC_CODES, at->row), geometry->padded / 8 * kind->bits, at->column, at->n,
                 kind->bits, kind->is_signed, chunk->codes);
    if (kind->has_levels)
        load_levels(chunk->codes, at->n);
}

static inline void spread_above(const uint8_t *restrict codes, int64_t n, float scale, float minimum,
                                float *restrict to) {
    const int8_t *from = (const int8_t *)codes;
    for (int64_t j = 0; j < n; j++)
        to[j] = scale * (float)from[j] + minimum;
}

/* for every group g of the chunk: its columns [c, end) */
#define FOR_RUNS(g)                                                                                                    \
    for (int64_t g = 0, c = 0, end = hc_min(chunk.n, (chunk.first_group + 1) * geometry->group - chunk.column);        \
         c < chunk.n; g++, c = end, end = hc_min(chunk.n, end + geometry->group))

static int64_t decode_values(const hc_format *format, const hc_geometry *geometry, const hc_components *components,
                             const hc_tile *tile, float *values, int64_t ld) {
    hc_ggml_chunk terms;
    for (int64_t i = 0; i < tile->rows; i++)
        HC_FOR_CHUNKS(i, terms) {
            float *to = values + i * ld + chunk.column - tile->first_column;
            FOR_RUNS(g) {
                if (ggml_kind(format)->has_minimum)
                    spread_above(terms.codes + c, end - c, terms.scale[g], terms.minimum[g], to + c);
                else
                    scale_bytes(terms.codes + c, end - c, terms.scale[g], to + c);
            }
        }
    return HC_DONE;
}

static int64_t decode_integers(const hc_format *format, const hc_geometry *geometry, const hc_components *components,
                               const hc_tile *tile, hc_int_mode mode, const hc_int_tile *out) {
    (void)mode;
    enum { PIECE = 64 };
    const hc_ggml_kind *kind = ggml_kind(format);
    const int64_t first = tile->first_column / kind->group;
    const int64_t groups = hc_ceil_div(tile->first_column + tile->columns, kind->group) - first;
    for (int64_t i = 0; i < tile->rows; i++) {
        plain_integers(geometry, components, tile, i, kind->bits, kind->is_signed, out);
        float *scales = out->group_scale + i * out->groups_ld;
        for (int64_t g = 0; g < groups; g += PIECE) {
            float factors[8 + PIECE + 8];
            const int64_t n = hc_min(PIECE, groups - g), skip = kind->scale_bits ? (first + g) % 8 : 0;
            load_factors(kind, geometry, components, tile->first_row + i, HC_SCALES, first + g - skip, n + skip,
                         factors);
            memcpy(scales + g, factors + skip, (size_t)n * sizeof *scales);
        }
    }
    return HC_DONE;
}

static int64_t decode_codes(const hc_format *format, const hc_geometry *geometry, const hc_components *components,
                            const hc_tile *tile, const hc_code_tile *out) {
    for (int64_t i = 0; i < tile->rows; i++)
        out->row_scale[i] = 1.0f;
    if (ggml_kind(format)->has_minimum)
        return decode_values(format, geometry, components, tile, out->codes, out->codes_ld);
    hc_ggml_chunk terms;
    for (int64_t i = 0; i < tile->rows; i++)
        HC_FOR_CHUNKS(i, terms) {
            float *to = out->codes + i * out->codes_ld + chunk.column - tile->first_column;
            float *scales = out->scales + i * out->scales_ld + chunk.first_group - tile->first_column / geometry->group;
            FOR_RUNS(g) { scales[g] = terms.scale[g]; }
            scale_bytes(terms.codes, chunk.n, 1.0f, to);
        }
    return HC_DONE;
}

static int64_t doubles(const hc_format *format, const hc_geometry *geometry, const hc_components *components,
                       const hc_tile *tile, double *values, int64_t ld) {
    if (!ggml_kind(format)->has_minimum)
        return decode_doubles(format, geometry, components, tile, decode_codes, false, values, ld);
    hc_ggml_chunk terms;
    for (int64_t i = 0; i < tile->rows; i++)
        HC_FOR_CHUNKS(i, terms) {
            double *to = values + i * ld + chunk.column - tile->first_column;
            FOR_RUNS(g) {
                spread_doubles(terms.codes + c, end - c, (double)terms.scale[g], (double)terms.minimum[g], to + c);
            }
        }
    return HC_DONE;
}

HC_SIMD_TABLE(ggml, .encode = encode, .values = decode_values, .integers = decode_integers, .doubles = doubles,
              .codes = decode_codes, .scales = row_scales, .minima = row_minima);
