/* The types of blocks by their parameters, and the factors of a group's codes. */
#ifndef HC_GGML_H
#define HC_GGML_H

#include "formats/bits.h"
#include "formats/format.h"
#include "formats/ggml/kinds.h"

static inline int ggml_type(const hc_format *format) { return format->option[0]; }
static inline const hc_ggml_kind *ggml_kind(const hc_format *format) { return &GGML_KIND[ggml_type(format)]; }

/* float16 number i of a part of a row. The number of a block is often subnormal, and processors are slow with subnormal
 * floats. */
static inline float ggml_half(const uint8_t *part, int64_t i) {
    const uint16_t half = hc_load_u16(part + i * 2);
    if (half & 0x7c00)
        return hc_f16_to_f32(half);
    const float value = (float)(half & 0x3ff) * 0x1p-24f;
    return half & 0x8000 ? -value : value;
}

/* value = scale * code + minimum of group `group` of a row; both are exact. */
static inline float ggml_scale(const hc_ggml_kind *kind, const hc_components *components, int64_t row, int64_t group) {
    const uint8_t *scales = hc_part(components, HC_SCALES, row);
    if (kind->scale_bits == 0)
        return ggml_half(scales, group);
    const int64_t block = group / (kind->block / kind->group);
    const float d = ggml_half(hc_part(components, HC_COARSE, row), kind->has_minimum ? 2 * block : block);
    const uint32_t code = hc_read_bits(scales, group, kind->scale_bits);
    return d * (float)(kind->has_minimum ? (int32_t)code : hc_sign_extend(code, kind->scale_bits));
}

static inline float ggml_minimum(const hc_ggml_kind *kind, const hc_components *components, int64_t row,
                                 int64_t group) {
    if (!kind->has_minimum)
        return 0;
    const uint8_t *minima = hc_part(components, HC_MINIMA, row);
    if (kind->scale_bits == 0)
        return ggml_half(minima, group);
    const int64_t block = group / (kind->block / kind->group);
    const float d = ggml_half(hc_part(components, HC_COARSE, row), 2 * block + 1);
    return -(d * (float)hc_read_bits(minima, group, kind->scale_bits));
}

#endif
