/* The elements and scales of NVFP4 for kernels/decode_elements.h; the definition is in formats/nvfp4.c. */
#include "kernels/decode_elements.h"

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
    line_elements(scales, n & ~(int64_t)15, HC_BY_E4M3, load_table16(elements->table), NULL, true, p, elements->scale);
    memcpy(last, scales + (n & ~(int64_t)15), (size_t)(n & 15));
    line_elements(last, n & 15, HC_BY_E4M3, load_table16(elements->table), NULL, true, p,
                  elements->scale + (n & ~(int64_t)15));
}
