/* The magnitudes and scales of log numbers for kernels/decode_elements.h; the definition is in formats/log.c. A value is
 * rounded once from float64, so that products of magnitudes with a scale are made in float64, as a table for each group
 * of many values, or one by one. */
#include "base/tables.h"
#include "kernels/decode_elements.h"

HC_CHUNK_VALUES(by_table16, HC_BY_TABLE16)
HC_CHUNK_VALUES(by_table, HC_BY_TABLE)

static inline hc_chunk_values_fn *chunk_values_of(hc_element_kind kind) {
    return kind == HC_BY_TABLE16 ? by_table16 : by_table;
}

/* T_e of every code without its sign, 0 for the code of zero; returns how many there are. */
static inline int fill_magnitudes(const hc_format *format, double *magnitudes) {
    const int half = 1 << (format->bits - 1), gamma = format->option[0], step = HC_OCTAVE_POWERS / gamma;
    double octave = 1;
    for (int e = 0; e < half; octave /= 2)
        for (int i = 0; i < gamma && e < half; i++, e++)
            magnitudes[e] = hc_octave_powers[i * step] * octave;
    magnitudes[half - 1] = 0;
    return half;
}

static inline void load_elements(const hc_format *format, const hc_components *components, int64_t row,
                                 hc_elements *elements) {
    double magnitudes[128];
    const int half = fill_magnitudes(format, magnitudes);
    (void)components, (void)row;
    elements->kind = format->bits <= 4 ? HC_BY_TABLE16 : HC_BY_TABLE;
    elements->unscaled = false;
    memset(elements->table, 0, 16 * sizeof *elements->table);
    for (int e = 0; e < half; e++) {
        elements->table[e] = (float)magnitudes[e];
        elements->table[half + e] = -(float)magnitudes[e];
    }
}

static inline void load_scales(const hc_format *format, const hc_geometry *geometry, const hc_components *components,
                               int64_t row, int64_t first_group, int64_t n, hc_elements *elements) {
    (void)format, (void)geometry;
    memcpy(elements->scale, (const float *)hc_part(components, HC_SCALES, row) + first_group,
           (size_t)n * sizeof *elements->scale);
}

static inline float saturated(double value) {
    const float rounded = (float)value;
    return rounded > FLT_MAX ? FLT_MAX : rounded < -FLT_MAX ? -FLT_MAX : rounded;
}

static inline void group_values(const double *restrict magnitudes, int n_codes, double scale,
                                const uint8_t *restrict codes, int64_t n, float *restrict values) {
    for (int64_t i = 0; i < n && n < n_codes; i++)
        values[i] = saturated(scale * magnitudes[codes[i]]);
    if (n < n_codes)
        return;
    _Alignas(64) float table[256];
    memset(table, 0, 16 * sizeof *table);
    for (int i = 0; i < n_codes; i++)
        table[i] = saturated(scale * magnitudes[i]);
    const hc_table16 table16 = load_table16(table);
    if (n_codes <= 16)
        line_elements(codes, n, HC_BY_TABLE16, table16, table, false, 1, values);
    else
        line_elements(codes, n, HC_BY_TABLE, table16, table, false, 1, values);
}

static inline int64_t decode_products(const hc_format *format, const hc_geometry *geometry,
                                      const hc_components *components, const hc_tile *tile, float *values, int64_t ld) {
    hc_elements elements;
    double magnitudes[256];
    const int half = fill_magnitudes(format, magnitudes), n_codes = 2 * half;
    for (int e = 0; e < half; e++)
        magnitudes[half + e] = -magnitudes[e];
    elements.kind = HC_BY_TABLE;
    for (int64_t i = 0; i < tile->rows; i++)
        HC_FOR_CHUNKS(i) {
            float *to = values + i * ld + chunk.column - tile->first_column;
            int64_t c = 0, end = hc_min(chunk.n, (chunk.first_group + 1) * geometry->group - chunk.column);
            for (int64_t g = 0; c < chunk.n; g++, c = end, end = hc_min(chunk.n, end + geometry->group))
                group_values(magnitudes, n_codes, (double)elements.scale[g], elements.codes + c, end - c, to + c);
        }
    return HC_DONE;
}
