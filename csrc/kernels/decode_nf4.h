/* The levels and scales of NF4 for kernels/decode_elements.h; the definition is in formats/nf4.c. */
#include "base/tables.h"
#include "kernels/decode_elements.h"

#include <math.h>

enum { BLOCK = 256 }; /* groups that share a second scale */

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
    memcpy(elements->table, hc_nf4_levels, sizeof hc_nf4_levels);
}

static inline void load_scales(const hc_format *format, const hc_geometry *geometry, const hc_components *components,
                               int64_t row, int64_t first_group, int64_t n, hc_elements *elements) {
    if (!format->option[0]) {
        memcpy(elements->scale, (const float *)hc_part(components, HC_SCALES, row) + first_group,
               (size_t)n * sizeof *elements->scale);
        return;
    }
    const int8_t *codes = (const int8_t *)hc_part(components, HC_SCALES, row) + first_group;
    const float *coarse = hc_part(components, HC_COARSE, 0);
    const float mean = hc_load_f32(hc_part(components, HC_MEAN, 0));
    const int64_t first = (components->first_row + row) * geometry->groups + first_group;
    for (int64_t i = 0; i < n; i++) {
        const float scale = fmaf((float)codes[i], coarse[(first + i) / BLOCK], mean);
        elements->scale[i] = scale > FLT_MAX ? FLT_MAX : scale > 0 ? scale : 0.0f;
    }
}
