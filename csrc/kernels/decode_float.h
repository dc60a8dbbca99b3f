/* The elements and scales of small floats for kernels/decode_elements.h; the options are in formats/float.c. */
#include "kernels/decode_elements.h"

enum { FP32 = 0, TF32, BF16, FP16, FIRST_SMALL };
enum { UNSCALED = 0, ROW_SCALED, TENSOR_SCALED };

HC_CHUNK_VALUES(by_table16, HC_BY_TABLE16)
HC_CHUNK_VALUES(by_e4m3, HC_BY_E4M3)
HC_CHUNK_VALUES(by_e5m2, HC_BY_E5M2)
HC_CHUNK_VALUES(by_e3m2, HC_BY_E3M2)
HC_CHUNK_VALUES(by_e2m3, HC_BY_E2M3)

static inline hc_chunk_values_fn *chunk_values_of(hc_element_kind kind) {
    switch (kind) {
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
    static const hc_element_kind kinds[] = {HC_BY_E4M3, HC_BY_E5M2, HC_BY_E3M2, HC_BY_E2M3, HC_BY_TABLE16};
    (void)components, (void)row;
    elements->kind = kinds[format->option[0] - FIRST_SMALL];
    elements->unscaled = format->option[2] == UNSCALED;
    signed_table(E2M1, elements->table);
}

static inline void load_scales(const hc_format *format, const hc_geometry *geometry, const hc_components *components,
                               int64_t row, int64_t first_group, int64_t n, hc_elements *elements) {
    (void)geometry, (void)first_group, (void)n;
    if (!elements->unscaled)
        elements->scale[0] =
            hc_load_f32(hc_part(components, format->option[2] == ROW_SCALED ? HC_SCALES : HC_COARSE, row));
}

/* n values of 16 or 32 bits, no scale; one NaN for all. */
static __attribute__((noinline)) void wide_values(const uint8_t *restrict from, int64_t n, int type,
                                                  float *restrict values) {
    if (n == 0) /* a row without columns has no memory */
        return;
    if (type == FP32) {
        memcpy(values, from, (size_t)n * sizeof *values);
        return;
    }
    int64_t i = 0;
    if (type == FP16)
        for (; i + 8 <= n; i += 8)
            _mm256_storeu_ps(values + i, _mm256_cvtph_ps(_mm_loadu_si128((const __m128i *)(from + 2 * i))));
    if (type == FP16)
        for (; i < n; i++)
            values[i] = hc_f16_to_f32(hc_load_u16(from + 2 * i));
    if (type == BF16)
        for (; i < n; i++)
            values[i] = hc_bf16_to_f32(hc_load_u16(from + 2 * i));
    if (type == TF32)
        for (; i < n; i++)
            values[i] = hc_f32_from_bits(hc_f32_bits(hc_load_f32(from + 4 * i)) & ~0x1fffu);
    for (i = 0; i < n; i++) {
        const uint32_t bits = hc_f32_bits(values[i]);
        values[i] = hc_f32_from_bits((bits & 0x7fffffff) > 0x7f800000 ? (bits & 0x80000000) | 0x7fc00000 : bits);
    }
}

static inline int64_t wide_rows(const hc_format *format, const hc_components *components, const hc_tile *tile,
                                float *values, int64_t ld) {
    const int64_t size = format->bits / 8;
    if (format->option[2] != UNSCALED)
        return HC_DECLINED;
    for (int64_t i = 0; i < tile->rows; i++)
        wide_values((const uint8_t *)hc_part(components, HC_CODES, tile->first_row + i) + tile->first_column * size,
                    tile->columns, format->option[0], values + i * ld);
    return HC_DONE;
}
