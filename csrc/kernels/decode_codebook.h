/* The centroids and scales of codebooks for kernels/decode_elements.h; the definition is in formats/codebook.c. */
#include "kernels/decode_elements.h"

HC_CHUNK_VALUES(by_levels16, HC_BY_LEVELS16)
HC_CHUNK_VALUES(by_levels, HC_BY_LEVELS)

static inline hc_chunk_values_fn *chunk_values_of(hc_element_kind kind) {
    return kind == HC_BY_LEVELS16 ? by_levels16 : by_levels;
}

static inline void load_elements(const hc_format *format, const hc_components *components, int64_t row,
                                 hc_elements *elements) {
    elements->kind = format->bits <= 4 ? HC_BY_LEVELS16 : HC_BY_LEVELS;
    elements->unscaled = false;
    memset(elements->table, 0, 16 * sizeof *elements->table);
    memcpy(elements->table, hc_part(components, HC_CODEBOOK, row), sizeof *elements->table << format->bits);
}

static inline void load_scales(const hc_format *format, const hc_geometry *geometry, const hc_components *components,
                               int64_t row, int64_t first_group, int64_t n, hc_elements *elements) {
    (void)geometry;
    elements->scale[0] = 1;
    if (format->group != 0)
        memcpy(elements->scale, (const float *)hc_part(components, HC_SCALES, row) + first_group,
               (size_t)n * sizeof *elements->scale);
}
