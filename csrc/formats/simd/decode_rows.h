/* Decoding tiles of integer formats, CHUNK columns at a time: codes to bytes, then a loop per group, which the compiler
 * vectorizes (floats are rounded once, so all sets give the same bits). The SIMD set provides simd_unpack4 and
 * simd_values; the format provides load_terms, load_row_scale and count_limbs.
 *
 *   value = real * (integer * (code - zero))     of every group
 */
#ifndef HC_DECODE_ROWS_H
#define HC_DECODE_ROWS_H

#include "formats/simd/unpack.h"

#include <float.h>

typedef struct {
    float real[CHUNK + 8];
    int32_t integer[CHUNK + 8], zero[CHUNK + 8];
    bool has_integer, has_zero; /* otherwise every integer is 1, every zero point 0 */
    bool is_signed;             /* codes are signed */
    uint8_t codes[CHUNK + 64];
} hc_terms;

/* The terms of n groups of a row, the scale of a row (1 if it has none), and the limbs of the integers in products. */
static inline void load_terms(const hc_format *format, const hc_geometry *geometry, const hc_components *components,
                              int64_t row, int64_t first_group, int64_t n, hc_terms *terms);
static inline float load_row_scale(const hc_format *format, const hc_components *components, int64_t row);
static inline int count_limbs(const hc_format *format, hc_int_mode mode);

static inline __attribute__((always_inline)) void load_chunk(const hc_format *format, const hc_geometry *geometry,
                                                             const hc_components *components, const hc_chunk *chunk,
                                                             hc_terms *terms) {
    const int64_t last_group = (chunk->column + chunk->n - 1) / geometry->group;
    load_terms(format, geometry, components, chunk->row, chunk->first_group, last_group + 1 - chunk->first_group,
               terms);
    unpack_codes(hc_part(components, HC_CODES, chunk->row), (geometry->padded * format->bits + 7) / 8, chunk->column,
                 chunk->n, format->bits, terms->is_signed, terms->codes);
}

/* for every group g of the chunk, counted from its first: columns [c, end) of the chunk */
#define HC_FOR_RUNS(g)                                                                                                 \
    for (int64_t g = 0, c = 0, end = hc_min(chunk.n, (chunk.first_group + 1) * geometry->group - chunk.column);        \
         c < chunk.n; g++, c = end, end = hc_min(chunk.n, end + geometry->group))

static inline int32_t code_value(const uint8_t *codes, int64_t i, bool is_signed) {
    return is_signed ? (int8_t)codes[i] : codes[i];
}

/* n values that are groups of their own, saturated. */
static inline void values_alone(const hc_terms *terms, int64_t n, float *restrict to) {
    for (int64_t i = 0; i < n; i++) {
        const int32_t zero = terms->has_zero ? terms->zero[i] : 0, factor = terms->has_integer ? terms->integer[i] : 1;
        const int32_t integer = (code_value(terms->codes, i, terms->is_signed) - zero) * factor;
        const float product = terms->real[i] * (float)integer;
        to[i] = FLT_MAX < product ? FLT_MAX : product < -FLT_MAX ? -FLT_MAX : product;
    }
}

static inline int64_t decode_values(const hc_format *format, const hc_geometry *geometry,
                                    const hc_components *components, const hc_tile *tile, float *values, int64_t ld) {
    hc_terms terms;
    if (format->bits > 8)
        return HC_DECLINED;
    for (int64_t i = 0; i < tile->rows; i++)
        HC_FOR_CHUNKS(i, terms) {
            float *to = values + i * ld + chunk.column - tile->first_column;
            if (geometry->group == 1) {
                values_alone(&terms, chunk.n, to);
                continue;
            }
            HC_FOR_RUNS(g) {
                const int32_t integer = terms.has_integer ? terms.integer[g] : 1;
                if (terms.is_signed)
                    simd_values(terms.codes + c, end - c, true, 0, integer, terms.real[g], to + c);
                else
                    simd_values(terms.codes + c, end - c, false, terms.has_zero ? terms.zero[g] : 0, integer,
                                terms.real[g], to + c);
            }
        }
    return HC_DONE;
}

static inline int64_t decode_codes(const hc_format *format, const hc_geometry *geometry,
                                   const hc_components *components, const hc_tile *tile, const hc_code_tile *out) {
    hc_terms terms;
    if (format->bits > 8)
        return HC_DECLINED;
    for (int64_t i = 0; i < tile->rows; i++) {
        out->row_scale[i] = load_row_scale(format, components, tile->first_row + i);
        HC_FOR_CHUNKS(i, terms) {
            float *to = out->codes + i * out->codes_ld + chunk.column - tile->first_column;
            float *scales = out->scales + i * out->scales_ld + chunk.first_group - tile->first_column / geometry->group;
            if (!terms.has_zero && terms.is_signed)
                simd_values(terms.codes, chunk.n, true, 0, 1, 1.0f, to);
            else if (!terms.has_zero)
                simd_values(terms.codes, chunk.n, false, 0, 1, 1.0f, to);
            HC_FOR_RUNS(g) {
                if (format->group != 0)
                    scales[g] = terms.has_integer ? (float)terms.integer[g] : terms.real[g];
                if (terms.has_zero)
                    simd_values(terms.codes + c, end - c, false, terms.zero[g], 1, 1.0f, to + c);
            }
        }
    }
    return HC_DONE;
}

/* Integers of whole chunks, one loop per width: code - zero, or the group's factor times the code. */
static inline __attribute__((always_inline)) void store_integers(const uint8_t *codes, bool is_signed,
                                                                 const int16_t *zeros, const int16_t *factors,
                                                                 int64_t n, int n_limbs, int8_t *const limb[3]) {
    int8_t *restrict low = limb[0], *restrict middle = limb[1], *restrict high = limb[2];
    for (int64_t j = 0; j < n; j++) {
        int32_t value = code_value(codes, j, is_signed);
        if (zeros)
            value -= zeros[j];
        if (factors)
            value *= factors[j];
        low[j] = (int8_t)value;
        if (n_limbs > 1)
            middle[j] = (int8_t)(value >> 8);
        if (n_limbs > 2)
            high[j] = (int8_t)(value >> 16);
    }
}

/* One byte per value: only the low byte of the product of two bytes is needed. */
static inline void multiply_bytes(const uint8_t *restrict codes, const uint8_t *restrict factors, int64_t n,
                                  int8_t *restrict out) {
    for (int64_t j = 0; j < n; j++)
        out[j] = (int8_t)(uint8_t)(codes[j] * factors[j]);
}

/* The index of the group of each column. */
static inline void spread(const hc_geometry *geometry, const hc_chunk *at, const int32_t *restrict numbers,
                          int16_t *restrict columns) {
    const hc_chunk chunk = *at;
    if (geometry->group == 1) {
        for (int64_t c = 0; c < chunk.n; c++)
            columns[c] = (int16_t)numbers[c];
        return;
    }
    HC_FOR_RUNS(g) {
        const int16_t number = (int16_t)numbers[g];
        if (end - c == UNIT)
            for (int j = 0; j < UNIT; j++)
                columns[c + j] = number;
        else
            for (int64_t j = c; j < end; j++)
                columns[j] = number;
    }
}

static inline void spread_bytes(const hc_geometry *geometry, const hc_chunk *at, const int32_t *restrict numbers,
                                uint8_t *restrict columns) {
    const hc_chunk chunk = *at;
    if (geometry->group == 1) {
        for (int64_t c = 0; c < chunk.n; c++)
            columns[c] = (uint8_t)numbers[c];
        return;
    }
    HC_FOR_RUNS(g) {
        if (end - c == UNIT)
            memset(columns + c, numbers[g], UNIT);
        else
            memset(columns + c, numbers[g], (size_t)(end - c));
    }
}

/* 16- and 24-bit codes are their limbs. */
static inline void decode_wide(const uint8_t *restrict codes, int64_t n, int n_bytes, int8_t *const limb[3]) {
    int8_t *restrict low = limb[0], *restrict middle = limb[1], *restrict high = limb[2];
    if (n_bytes == 2)
        for (int64_t j = 0; j < n; j++) {
            low[j] = (int8_t)codes[2 * j];
            middle[j] = (int8_t)codes[2 * j + 1];
        }
    else
        for (int64_t j = 0; j < n; j++) {
            low[j] = (int8_t)codes[3 * j];
            middle[j] = (int8_t)codes[3 * j + 1];
            high[j] = (int8_t)codes[3 * j + 2];
        }
}

static inline int64_t decode_wide_rows(const hc_format *format, const hc_components *components, const hc_tile *tile,
                                       hc_int_mode mode, const hc_int_tile *out) {
    const int n_bytes = format->bits / 8;
    for (int64_t i = 0; i < tile->rows; i++) {
        const float scale = load_row_scale(format, components, tile->first_row + i);
        if (mode == HC_INT_FOLDED)
            out->row_scale[i] = scale;
        else if (tile->columns > 0)
            out->group_scale[i * out->groups_ld] = scale;
        int8_t *limb[3] = {NULL};
        for (int j = 0; j < n_bytes; j++)
            limb[j] = out->limb[j] + i * out->ld;
        const uint8_t *codes = hc_part(components, HC_CODES, tile->first_row + i);
        decode_wide(codes + tile->first_column * n_bytes, tile->columns, n_bytes, limb);
    }
    return HC_DONE;
}

/* The scales of n groups. */
static inline void store_scales(const hc_terms *terms, hc_int_mode mode, int64_t n, float *restrict scales) {
    if (mode == HC_INT_SPLIT)
        for (int64_t g = 0; g < n; g++)
            scales[g] = (float)terms->integer[g];
    else if (!terms->has_integer)
        memcpy(scales, terms->real, (size_t)n * sizeof *scales);
    else
        for (int64_t g = 0; g < n; g++) {
            const float scale = terms->real[g] * (float)terms->integer[g];
            scales[g] = FLT_MAX < scale ? FLT_MAX : scale < -FLT_MAX ? -FLT_MAX : scale;
        }
}

static inline int64_t decode_integers(const hc_format *format, const hc_geometry *geometry,
                                      const hc_components *components, const hc_tile *tile, hc_int_mode mode,
                                      const hc_int_tile *out) {
    const int n_limbs = count_limbs(format, mode);
    hc_terms terms;
    if (format->bits > 8)
        return decode_wide_rows(format, components, tile, mode, out);
    for (int64_t i = 0; i < tile->rows; i++) {
        if (mode != HC_INT_GROUPED)
            out->row_scale[i] = load_row_scale(format, components, tile->first_row + i);
        HC_FOR_CHUNKS(i, terms) {
            const int64_t place = i * out->ld + chunk.column - tile->first_column;
            int8_t *limb[3];
            for (int j = 0; j < 3; j++)
                limb[j] = j < n_limbs ? out->limb[j] + place : NULL;
            if (mode != HC_INT_FOLDED)
                store_scales(&terms, mode, (chunk.column + chunk.n - 1) / geometry->group + 1 - chunk.first_group,
                             out->group_scale + i * out->groups_ld + chunk.first_group -
                                 tile->first_column / geometry->group);
            const bool folds = mode == HC_INT_FOLDED && terms.has_integer;
            if (n_limbs == 1 && !folds && !terms.has_zero) {
                memcpy(limb[0], terms.codes, (size_t)chunk.n);
            } else if (n_limbs == 1 && folds) {
                uint8_t factors[CHUNK];
                spread_bytes(geometry, &chunk, terms.integer, factors);
                multiply_bytes(terms.codes, factors, chunk.n, limb[0]);
            } else {
                int16_t columns[CHUNK];
                if (folds || terms.has_zero)
                    spread(geometry, &chunk, folds ? terms.integer : terms.zero, columns);
                const int16_t *factors = folds ? columns : NULL, *zeros = terms.has_zero ? columns : NULL;
                if (zeros && n_limbs == 1)
                    store_integers(terms.codes, false, zeros, NULL, chunk.n, 1, limb);
                else if (zeros)
                    store_integers(terms.codes, false, zeros, NULL, chunk.n, 2, limb);
                else if (!factors)
                    store_integers(terms.codes, terms.is_signed, NULL, NULL, chunk.n, 2, limb);
                else if (n_limbs == 2)
                    store_integers(terms.codes, terms.is_signed, NULL, factors, chunk.n, 2, limb);
                else
                    store_integers(terms.codes, terms.is_signed, NULL, factors, chunk.n, 3, limb);
            }
        }
    }
    return HC_DONE;
}

#endif
