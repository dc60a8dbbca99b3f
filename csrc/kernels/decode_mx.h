/* The elements and scales of microscaling for kernels/decode_elements.h; the options are in formats/mx.c. */
#include "kernels/decode_elements.h"

HC_CHUNK_VALUES(by_table16, HC_BY_TABLE16)
HC_CHUNK_VALUES(by_int8, HC_BY_INT8)
HC_CHUNK_VALUES(by_e4m3, HC_BY_E4M3)
HC_CHUNK_VALUES(by_e5m2, HC_BY_E5M2)
HC_CHUNK_VALUES(by_e3m2, HC_BY_E3M2)
HC_CHUNK_VALUES(by_e2m3, HC_BY_E2M3)

static inline hc_chunk_values_fn *chunk_values_of(hc_element_kind kind) {
    switch (kind) {
    case HC_BY_INT8:
        return by_int8;
    case HC_BY_E4M3:
        return by_e4m3;
    case HC_BY_E5M2:
        return by_e5m2;
    case HC_BY_E3M2:
        return by_e3m2;
    case HC_BY_E2M3:
        return by_e2m3;
    default:
        return by_table16;
    }
}

static inline void load_elements(const hc_format *format, const hc_components *components, int64_t row,
                                 hc_elements *elements) {
    static const hc_element_kind kinds[] = {HC_BY_E4M3, HC_BY_E5M2, HC_BY_E3M2, HC_BY_E2M3, HC_BY_TABLE16, HC_BY_INT8};
    (void)components, (void)row;
    elements->kind = kinds[format->option[0] - 4];
    elements->unscaled = false;
    signed_table(E2M1, elements->table);
}

static inline void load_scales(const hc_format *format, const hc_geometry *geometry, const hc_components *components,
                               int64_t row, int64_t first_group, int64_t n, hc_elements *elements) {
    const uint8_t *scales = (const uint8_t *)hc_part(components, HC_SCALES, row) + first_group;
    (void)format, (void)geometry;
    for (int64_t i = 0; i < n; i++)
        elements->scale[i] = hc_f32_from_bits(scales[i] == 0xff ? 0x7fc00000
                                              : scales[i] == 0  ? 0x00400000
                                                                : (uint32_t)scales[i] << 23);
}
