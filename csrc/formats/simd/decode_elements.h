/* Decoding tiles of formats whose codes represent elements (formats/simd/codes.h), CHUNK columns at a time: codes to
 * bytes, then a loop per group. The SIMD set provides simd_unpack4, load_table16 and simd_elements; the format provides
 * load_elements, load_scales and chunk_values_of.
 *
 *   value = element * scale     of every group
 */
#ifndef HC_DECODE_ELEMENTS_H
#define HC_DECODE_ELEMENTS_H

#include "formats/simd/unpack.h"

#include <float.h>

typedef struct {
    hc_element_kind kind;
    bool unscaled;                 /* no row and no group has a scale */
    _Alignas(64) float table[256]; /* of the row */
    float scale[CHUNK + 8];
    uint8_t codes[CHUNK + 64];
} hc_elements;

/* Fills the kind of elements and the table of row `row`. */
static inline void load_elements(const hc_format *format, const hc_components *components, int64_t row,
                                 hc_elements *elements);
/* Scales of n groups of the row. */
static inline void load_scales(const hc_format *format, const hc_geometry *geometry, const hc_components *components,
                               int64_t row, int64_t first_group, int64_t n, hc_elements *elements);

static inline __attribute__((always_inline)) void load_chunk(const hc_format *format, const hc_geometry *geometry,
                                                             const hc_components *components, const hc_chunk *chunk,
                                                             hc_elements *elements) {
    const int64_t last_group = (chunk->column + chunk->n - 1) / geometry->group;
    load_scales(format, geometry, components, chunk->row, chunk->first_group, last_group + 1 - chunk->first_group,
                elements);
    unpack_codes(hc_part(components, HC_CODES, chunk->row), (geometry->padded * format->bits + 7) / 8, chunk->column,
                 chunk->n, format->bits, elements->kind > HC_BY_TABLE, elements->codes);
}

/* Multiplies n elements by scales of their own; saturated. */
static inline __attribute__((always_inline)) void scale_alone(const float *restrict scale, int64_t n,
                                                              bool no_minus_zero, float *restrict to) {
    for (int64_t i = 0; i < n; i++) {
        const float product = scale[i] * to[i];
        const float value = FLT_MAX < product ? FLT_MAX : product < -FLT_MAX ? -FLT_MAX : product;
        to[i] = no_minus_zero ? value + 0.0f : value;
    }
}

/* Elements of a chunk, multiplied by the scales of their groups if `scaled`. */
static inline __attribute__((always_inline)) void chunk_values(const hc_geometry *geometry, const hc_chunk *chunk,
                                                               const hc_elements *elements, hc_element_kind kind,
                                                               bool scaled, float *to) {
    const hc_table16 table = load_table16(elements->table);
    const bool alone = geometry->group == 1 && (is_by_16(kind) || kind == HC_BY_INT8); /* no element is NaN */
    if (!scaled || alone)
        simd_elements(elements->codes, chunk->n, kind, table, elements->table, false, 1, to);
    if (scaled && alone)
        scale_alone(elements->scale, chunk->n, has_no_minus_zero(kind), to);
    if (!scaled || alone)
        return;
    int64_t c = 0, end = hc_min(chunk->n, (chunk->first_group + 1) * geometry->group - chunk->column);
    for (int64_t g = 0; c < chunk->n; g++, c = end, end = hc_min(chunk->n, end + geometry->group))
        simd_elements(elements->codes + c, end - c, kind, table, elements->table, true, elements->scale[g], to + c);
}

/* One function per kind, so that the loop contains only the code of its kind. */
#define HC_CHUNK_VALUES(name, kind)                                                                                    \
    static __attribute__((noinline)) void name(const hc_geometry *geometry, const hc_chunk *chunk,                     \
                                               const hc_elements *elements, bool scaled, float *to) {                  \
        if (scaled)                                                                                                    \
            chunk_values(geometry, chunk, elements, kind, true, to);                                                   \
        else                                                                                                           \
            chunk_values(geometry, chunk, elements, kind, false, to);                                                  \
    }
typedef void hc_chunk_values_fn(const hc_geometry *, const hc_chunk *, const hc_elements *, bool, float *);

/* The function that decodes a kind. */
static inline hc_chunk_values_fn *chunk_values_of(hc_element_kind kind);

static inline int64_t decode_values(const hc_format *format, const hc_geometry *geometry,
                                    const hc_components *components, const hc_tile *tile, float *values, int64_t ld) {
    hc_elements elements;
    for (int64_t i = 0; i < tile->rows; i++) {
        load_elements(format, components, tile->first_row + i, &elements);
        hc_chunk_values_fn *decode = chunk_values_of(elements.kind);
        HC_FOR_CHUNKS(i, elements)
        decode(geometry, &chunk, &elements, !elements.unscaled, values + i * ld + chunk.column - tile->first_column);
    }
    return HC_DONE;
}

/* The scales of a chunk of row i of the tile, for matmuls with few vectors. */
static inline void store_scales(const hc_format *format, const hc_geometry *geometry, const hc_tile *tile, int64_t i,
                                const hc_chunk *chunk, const hc_elements *elements, const hc_code_tile *out) {
    const int64_t first = tile->first_column / geometry->group;
    out->row_scale[i] = format->group == 0 && !elements->unscaled ? elements->scale[0] : 1;
    if (format->group != 0)
        memcpy(out->scales + i * out->scales_ld + chunk->first_group - first, elements->scale,
               (size_t)((chunk->column + chunk->n - 1) / geometry->group + 1 - chunk->first_group) *
                   sizeof *elements->scale);
}

static inline int64_t decode_codes(const hc_format *format, const hc_geometry *geometry,
                                   const hc_components *components, const hc_tile *tile, const hc_code_tile *out) {
    hc_elements elements;
    for (int64_t i = 0; i < tile->rows; i++) {
        load_elements(format, components, tile->first_row + i, &elements);
        hc_chunk_values_fn *decode = chunk_values_of(elements.kind);
        out->row_scale[i] = 1;
        HC_FOR_CHUNKS(i, elements) {
            store_scales(format, geometry, tile, i, &chunk, &elements, out);
            decode(geometry, &chunk, &elements, false,
                   out->codes + i * out->codes_ld + chunk.column - tile->first_column);
        }
    }
    return HC_DONE;
}

enum { LOOKED_UP = 64 };

/* HC_INT_GROUPED of elements that are integers times 2^-fraction_bits: int8, or floats with two bits of exponent. */
static inline void e2_table(int8_t table[16]) {
    for (int code = 0; code < 16; code++)
        table[code] = (int8_t)(uint8_t)(hc_e2_integer((uint8_t)code, 1) - hc_e2_zero(1));
}

/* `codes` has room for LOOKED_UP more. */
static inline void e2_integers4(const uint8_t *restrict codes, int64_t n, const int8_t table[16], int8_t *restrict to) {
    int8_t last[LOOKED_UP];
    const int64_t i = simd_lookup16(codes, n, table, to);
    if (i < n) {
        simd_lookup16(codes + i, LOOKED_UP, table, last);
        memcpy(to + i, last, (size_t)(n - i));
    }
}

static inline void e2_integers6(const uint8_t *restrict codes, int64_t n, int8_t *restrict to) {
    for (int64_t i = 0; i < n; i++)
        to[i] = (int8_t)(uint8_t)(hc_e2_integer(codes[i], 3) - hc_e2_zero(3));
}

static inline int64_t decode_integers(const hc_format *format, const hc_geometry *geometry,
                                      const hc_components *components, const hc_tile *tile, int fraction_bits,
                                      const hc_int_tile *out) {
    const float unit = 1.0f / (float)(1 << fraction_bits);
    hc_elements elements;
    int8_t table[16];
    e2_table(table);
    for (int64_t i = 0; i < tile->rows; i++) {
        load_elements(format, components, tile->first_row + i, &elements);
        HC_FOR_CHUNKS(i, elements) {
            int8_t *to = out->limb[0] + i * out->ld + chunk.column - tile->first_column;
            float *scales =
                out->group_scale + i * out->groups_ld + chunk.first_group - tile->first_column / geometry->group;
            const int64_t last_group = (chunk.column + chunk.n - 1) / geometry->group;
            for (int64_t g = 0; g <= last_group - chunk.first_group; g++)
                scales[g] = elements.scale[g] * unit;
            if (elements.kind == HC_BY_INT8)
                memcpy(to, elements.codes, (size_t)chunk.n);
            else if (format->bits == 4)
                e2_integers4(elements.codes, chunk.n, table, to);
            else
                e2_integers6(elements.codes, chunk.n, to);
        }
    }
    return HC_DONE;
}

/* Looks up the code in bits 0 to 3 in a table of magnitudes followed by the negated magnitudes. */
static inline void signed_table(const float magnitudes[8], float *table) {
    for (int i = 0; i < 8; i++) {
        table[i] = magnitudes[i];
        table[i + 8] = -magnitudes[i];
    }
}

static const float E2M1[8] = {0, 0.5f, 1, 1.5f, 2, 3, 4, 6};

#endif
