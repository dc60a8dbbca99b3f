/* Values of a tile as float64, for formats whose values are codes times scales: the kernel of codes, and the product.
 *
 *   value = row_scale * (scale * code)     scale and code are float32, and one of the two products is exact: row_scale
 *                                          is 1, or scale and code are integers of at most 24 bits together
 */
#ifndef HC_DOUBLES_H
#define HC_DOUBLES_H

#include "formats/simd/simd.h"

enum { DOUBLES_PIECE = 1024 /* columns at a time */ };

/* no_minus_zero: the inner product is 0 instead. */
static inline void scaled_doubles(const float *restrict codes, int64_t n, double row_scale, double scale,
                                  bool no_minus_zero, double *restrict values) {
    if (no_minus_zero)
        for (int64_t i = 0; i < n; i++)
            values[i] = row_scale * (scale * (double)codes[i] + 0.0);
    else
        for (int64_t i = 0; i < n; i++)
            values[i] = row_scale * (scale * (double)codes[i]);
}

/* scale * code + minimum of unsigned codes. */
static inline void spread_doubles(const uint8_t *restrict codes, int64_t n, double scale, double minimum,
                                  double *restrict values) {
    for (int64_t i = 0; i < n; i++)
        values[i] = scale * (double)codes[i] + minimum;
}

/* The end of the piece that begins at a column: whole groups, or a part of one group that is longer. */
static inline int64_t piece_end(const hc_geometry *geometry, int64_t unit, int64_t column, int64_t last) {
    const int64_t length = geometry->group;
    if (unit <= DOUBLES_PIECE)
        return hc_min(last, column + DOUBLES_PIECE / unit * unit);
    return hc_min(hc_min(last, column + DOUBLES_PIECE), (column / length + 1) * length);
}

static inline int64_t decode_doubles(const hc_format *format, const hc_geometry *geometry,
                                     const hc_components *components, const hc_tile *tile, hc_decode_codes_fn *codes_of,
                                     bool no_minus_zero, double *values, int64_t ld) {
    const int64_t length = geometry->group, unit = length % 8 == 0 ? length : 8 * length;
    const bool has_groups = hc_has_groups(format);
    float codes[DOUBLES_PIECE], scales[DOUBLES_PIECE], row_scale;
    if (length == 0 || (unit > DOUBLES_PIECE && length % 8 != 0 && geometry->groups > 1))
        return HC_DECLINED;
    const hc_code_tile out = {codes, DOUBLES_PIECE, scales, DOUBLES_PIECE, &row_scale};
    const int64_t last = tile->first_column + tile->columns;
    for (int64_t i = 0; i < tile->rows; i++)
        for (int64_t column = tile->first_column, end; column < last; column = end) {
            end = piece_end(geometry, unit, column, last);
            const hc_tile piece = {tile->first_row + i, 1, column, end - column};
            if (codes_of(format, geometry, components, &piece, &out) != HC_DONE)
                return HC_DECLINED;
            double *to = values + i * ld + column - tile->first_column;
            for (int64_t c = column, g = 0, next; c < end; c = next, g++) {
                next = hc_min(end, (c / length + 1) * length);
                scaled_doubles(codes + c - column, next - c, (double)row_scale, has_groups ? (double)scales[g] : 1,
                               no_minus_zero, to + c - column);
            }
        }
    return HC_DONE;
}

/* Defines the function `doubles` of a format. */
#define HC_DOUBLES(codes_of, no_minus_zero)                                                                            \
    static int64_t doubles(const hc_format *format, const hc_geometry *geometry, const hc_components *components,      \
                           const hc_tile *tile, double *values, int64_t ld) {                                          \
        return decode_doubles(format, geometry, components, tile, codes_of, no_minus_zero, values, ld);                \
    }

#endif
