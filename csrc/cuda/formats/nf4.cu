/* Kernels of the format family "nf4", from its definition. */
#include "cuda/chance.h"
#include "cuda/formats/known.h"
#include "cuda/formats/words.h"

#define HC_DEFINITION "formats/nf4/nf4.c"
#include "cuda/formats/define.h"

namespace {
/* A table in shared memory, of the kernels that know the format: a word for each of 33 cells of quotients, and the levels.
 *
 * Cell c has the quotients that round to (c - 16) / 16, among them at most one midpoint of levels. Its word is the nearest midpoint,
 * the lowest 4 bits of which are replaced by the code of quotients up to it. */
enum { CELLS = 33, LEVELS_AT = 36, TABLE_WORDS = LEVELS_AT + definition::NF4_LEVELS };

HC_DEVICE void make_cells(uint32_t *table) {
    const int cell = (int)threadIdx.x;
    if (cell < definition::NF4_LEVELS)
        table[LEVELS_AT + cell] = hc_f32_bits(definition::NF4_LEVEL[cell]);
    if (cell >= CELLS)
        return;
    double midpoints[definition::NF4_LEVELS - 1];
    hc_midpoints(definition::NF4_LEVEL, definition::NF4_LEVELS, midpoints);
    const float center = (float)(cell - 16) / 16;
    float least = INFINITY;
#pragma unroll
    for (uint32_t i = 0; i < definition::NF4_LEVELS - 1; i++) {
        const float midpoint = (float)midpoints[i], distance = fabsf(midpoint - center);
        if (distance < least) {
            least = distance;
            table[cell] = (hc_f32_bits(midpoint) & ~15u) | i;
        }
    }
}

/* Codes of 32 values by the table, as quick.h does for other formats: a midpoint in it differs from its own by less than
 * 16 2^-24, and a quotient by less than 2^-24. */
HC_DEVICE bool encode_by_cells(const uint32_t *table, const float *values, float absmax, float scale, uint32_t *codes) {
    const float inverse = hc_quick_inverse(hc_divisor_of((double)scale, true)), by_16 = inverse * 16;
    if (!(inverse > 0 && by_16 <= FLT_MAX && absmax * inverse < 1 + 0x1p-6f))
        return false;
    float nearest = 1; /* distance to a midpoint */
    hc_bit_writer writer = {(uint8_t *)codes, 0, 0};
#pragma unroll
    for (int i = 0; i < HC_CUDA_KNOWN_COLUMNS; i++) {
        const uint32_t cell = hc_f32_bits(fmaf(values[i], by_16, 0x1.8p23f + 16)) & 63;
        const uint32_t word = table[cell];
        const float difference = fmaf(values[i], -inverse, hc_f32_from_bits(word));
        nearest = fminf(nearest, fabsf(difference));
        hc_write_bits(&writer, word + (hc_f32_bits(difference) >> 31), 4);
    }
    return nearest > 20 * 0x1p-24f;
}

struct nf4_functions : hc_plain_format {
    static constexpr bool has_table = true, is_quick = true, has_row_maximum = false, is_rolled = true,
                          is_kept_rolled = true;
    static HC_DEVICE void make_table(uint32_t *table) { make_cells(table); }
    static HC_DEVICE bool encode_quickly(const uint32_t *table, const hc_format *, const hc_geometry *,
                                         const hc_encode_state *, const hc_float_rows *x, const float *thresholds,
                                         const hc_components *out) {
        bool legal = true;
        const float absmax = hc_group_absmax(x, 0, 0, HC_CUDA_KNOWN_COLUMNS, &legal);
        hc_store_f32((uint8_t *)out->part[HC_SCALES].data, thresholds[0]);
        return encode_by_cells(table, (const float *)x->data, absmax, thresholds[0],
                               (uint32_t *)out->part[HC_CODES].data);
    }
    static HC_DEVICE void decode_by_table(const uint32_t *table, const hc_format *, const hc_geometry *,
                                          const hc_components *parts, const hc_tile *, float *values, int64_t) {
        const float scale = hc_load_f32(parts->part[HC_SCALES].data);
        hc_bit_reader codes = hc_bits_from(parts->part[HC_CODES].data, 0, 4);
#pragma unroll
        for (int i = 0; i < HC_CUDA_KNOWN_COLUMNS; i++)
            values[i] = definition::nf4_value((const float *)table + LEVELS_AT, hc_next_bits(&codes, 4), scale);
    }
    HC_ENCODES(nf4_encode)
    HC_DECODES(nf4)
    HC_HAS_CODES(nf4)
    HC_STORED_SCALES(32 | HC_DECODED_SCALES, false, hc_f32_from_bits(bits))
};
} // namespace

HC_ENCODERS(nf4, nf4_functions)
HC_CODEC_KNOWN(nf4_g64, nf4_functions, 4)
HC_FAMILY(nf4, nf4_functions, HC_WITH_GROUPS)
HC_GEMV_WORDS(nf4, nf4_functions, HC_WITH_GROUPS, 4, HC_GEMV_TABLE)
