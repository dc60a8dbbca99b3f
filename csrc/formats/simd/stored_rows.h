/* Decoding of tiles with codes of 4 or 8 bits, which are read as they are stored, group by group. This is faster than
 * decode_rows.h for short rows, such as the keys of a cache: their few values do not repay the steps of a chunk. The
 * SIMD set provides simd_scaled_entries, simd_lookup4, simd_values and simd_elements; the format provides load_group.
 *
 *   value = scale * (integer * element)     for every group; 4 bits: the group's 16 values, then a lookup of each code
 */
#ifndef HC_DECODE_STORED_H
#define HC_DECODE_STORED_H

#include "formats/simd/unpack.h"

#define HC_INLINE static inline __attribute__((always_inline))

/* Properties of codes that are constants in the loop over groups, which is compiled for each combination. */
typedef struct {
    int bits;
    bool is_integer, is_signed; /* of 8-bit codes */
    hc_element_kind kind;       /* of other codes */
    bool scaled, has_integer;   /* false: the factor is 1 */
} hc_stored_codes;

/* A row of a tile. A component that the format lacks is NULL. */
typedef struct {
    const uint8_t *codes, *scales, *coarse;
} hc_stored_row;
typedef struct {
    float scale, integer;
} hc_stored_group;

/* The factors of the elements of a group. */
static inline hc_stored_group load_group(const hc_format *format, const hc_stored_row *row, int64_t group);

/* True if codes begin on a byte and the values of groups fill registers. */
static inline bool reads_stored(const hc_format *format, const hc_geometry *geometry, const hc_tile *tile) {
    const bool is_one = tile->first_column + tile->columns <= geometry->group;
    return (format->bits == 4 || format->bits == 8) && tile->first_column % UNIT == 0 && tile->columns % UNIT == 0 &&
           (is_one || geometry->group % UNIT == 0);
}

/* Decodes n codes of one group. table: the elements of 4-bit codes. */
HC_INLINE void group_values(const hc_stored_codes of, const float *table, const uint8_t *codes, int64_t n,
                            hc_stored_group by, float *to) {
    if (of.bits == 4)
        simd_lookup4(codes, n,
                     of.scaled ? simd_scaled_entries(table, of.kind, of.has_integer, by.integer, by.scale)
                               : load_table16(table),
                     to);
    else if (of.is_integer)
        simd_values(codes, n, of.is_signed, 0, of.has_integer ? (int32_t)by.integer : 1, by.scale, to);
    else
        simd_elements(codes, n, of.kind, load_table16(table), table, of.scaled, by.scale, to);
}

/* `size`: number of values of every group of the tile. 0: geometry->group, and fewer at the ends of the tile. */
HC_INLINE void stored_rows(const hc_format *format, const hc_geometry *geometry, const hc_components *components,
                           const hc_tile *tile, const hc_stored_codes of, const float *table, const int64_t size,
                           float *values, int64_t ld) {
    const hc_format local = *format; /* a copy: the compiler need not reload it after writes to `values` */
    const int64_t group_size = size ? size : of.scaled ? geometry->group : tile->columns, columns = tile->columns;
    const int64_t first = tile->first_column / group_size, skipped = size ? 0 : tile->first_column % group_size;
    for (int64_t i = 0; i < tile->rows; i++, values += ld) {
        const hc_stored_row row = {
            (const uint8_t *)hc_part(components, HC_CODES, tile->first_row + i) + tile->first_column * of.bits / 8,
            hc_part(components, HC_SCALES, tile->first_row + i), hc_part(components, HC_COARSE, tile->first_row + i)};
        int64_t group = first, end = group_size - skipped;
        for (int64_t c = 0; c < columns; c = end, end += group_size, group++) {
            hc_stored_group by = {1, 1};
            if (of.scaled)
                by = load_group(&local, &row, group);
            group_values(of, table, row.codes + (uint64_t)c * (uint64_t)of.bits / 8,
                         size ? size : hc_min(end, columns) - c, by, values + c);
        }
    }
}

HC_INLINE int64_t stored_values(const hc_format *format, const hc_geometry *geometry, const hc_components *components,
                                const hc_tile *tile, const hc_stored_codes of, const float *table, float *values,
                                int64_t ld) {
    const int64_t group = of.scaled ? geometry->group : 4 * UNIT;
    const bool whole = tile->first_column % group == 0 && tile->columns % group == 0;
    if (whole && group == UNIT)
        stored_rows(format, geometry, components, tile, of, table, UNIT, values, ld);
    else if (whole && group == 2 * UNIT)
        stored_rows(format, geometry, components, tile, of, table, 2 * UNIT, values, ld);
    else if (whole && group == 4 * UNIT)
        stored_rows(format, geometry, components, tile, of, table, 4 * UNIT, values, ld);
    else
        stored_rows(format, geometry, components, tile, of, table, 0, values, ld);
    return HC_DONE;
}

/* Integers of 4 or 8 bits, times the integers of groups if there are any. */
HC_INLINE int64_t stored_integers(const hc_format *format, const hc_geometry *geometry, const hc_components *components,
                                  const hc_tile *tile, const bool is_signed, const bool has_integer, float *values,
                                  int64_t ld) {
    const hc_stored_codes nibbles = {.bits = 4, .is_integer = true, .scaled = true, .has_integer = has_integer};
    const hc_stored_codes bytes = {8, true, is_signed, HC_BY_TABLE16, true, has_integer};
    float table[16];
    for (int code = 0; code < 16; code++)
        table[code] = (float)(is_signed ? (code ^ 8) - 8 : code);
    if (format->bits == 4)
        return stored_values(format, geometry, components, tile, nibbles, table, values, ld);
    return stored_values(format, geometry, components, tile, bytes, table, values, ld);
}

/* 8-bit elements: one function per kind, so that a loop contains only the code of its kind. */
typedef int64_t hc_stored_fn(const hc_format *, const hc_geometry *, const hc_components *, const hc_tile *, bool,
                             float *, int64_t);
#define HC_STORED_BYTES(name, kind_)                                                                                   \
    static __attribute__((noinline)) int64_t name(const hc_format *format, const hc_geometry *geometry,                \
                                                  const hc_components *components, const hc_tile *tile, bool scaled,   \
                                                  float *values, int64_t ld) {                                         \
        static const float none[16] = {0};                                                                             \
        const hc_stored_codes plain = {.bits = 8, .kind = kind_}, times = {.bits = 8, .kind = kind_, .scaled = true};  \
        if (scaled)                                                                                                    \
            return stored_values(format, geometry, components, tile, times, none, values, ld);                         \
        return stored_values(format, geometry, components, tile, plain, none, values, ld);                             \
    }

/* 4-bit elements, by their table. */
HC_INLINE int64_t stored_nibbles(const hc_format *format, const hc_geometry *geometry, const hc_components *components,
                                 const hc_tile *tile, const float table[16], const hc_element_kind kind,
                                 const bool scaled, float *values, int64_t ld) {
    const hc_stored_codes of = {.bits = 4, .kind = kind, .scaled = scaled};
    return stored_values(format, geometry, components, tile, of, table, values, ld);
}

#endif
