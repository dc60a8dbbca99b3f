/* Codes of single values: those of cuda/formats/quick.h and of the table of nf4, next to those of the definitions. */
#include "cuda/formats/nf4.cu"

namespace {
enum kinds { INT8, INT4, E4M3, E2M1, NF4 };

uint32_t exact_code(int kind, float x, float scale, const double *midpoints) {
    const hc_divisor by = hc_divisor_of((double)scale, true);
    if (kind == INT8 || kind == INT4) {
        const int32_t largest = kind == INT8 ? 127 : 7;
        return (uint32_t)hc_clipped(hc_divided((double)x, by), -largest, largest) & (kind == INT8 ? 255 : 15);
    }
    if (kind == NF4)
        return hc_nearest_level(midpoints, definition::NF4_LEVELS, (double)x / (double)scale);
    return hc_float_encode(hc_float_type_of(kind == E4M3 ? HC_TYPE_FP8_E4M3FN : HC_TYPE_FP4_E2M1),
                           hc_divided((double)x, by), true);
}

bool quick_code(int kind, float x, float scale, const uint32_t *table, uint32_t *code) {
    const hc_divisor by = hc_divisor_of((double)scale, true);
    const float values[HC_CUDA_KNOWN_COLUMNS] = {x};
    const hc_float_rows row = {values, HC_F32, HC_CUDA_KNOWN_COLUMNS, 0, 1};
    const bool is_byte = kind == INT8 || kind == E4M3;
    hc_bit_writer writer = {(uint8_t *)code, 0, 0};
    bool sure;
    if (kind == NF4) {
        uint32_t codes[HC_CUDA_KNOWN_COLUMNS / 8];
        sure = encode_by_cells(table, values, fabsf(x), scale, codes);
        *code = codes[0] & 15;
        return sure;
    }
    if (kind == INT8 || kind == INT4)
        sure = hc_quick_integers(&writer, &row, 0, 0, 1, by, fabsf(x), kind == INT8 ? 127 : 7, is_byte ? 8 : 4);
    else
        sure = hc_quick_floats(&writer, &row, 0, 0, 1, by, fabsf(x),
                               hc_float_type_of(kind == E4M3 ? HC_TYPE_FP8_E4M3FN : HC_TYPE_FP4_E2M1));
    *code = (uint32_t)writer.pending;
    return sure;
}
} // namespace

/* Counts the values x of all bits from `first` on, `step` apart: {certain, of these wrong, in range of the format}. */
extern "C" void hc_sweep_quick(int kind, float scale, uint32_t first, uint32_t step, int64_t counts[3]) {
    alignas(16) uint32_t table[TABLE_WORDS] = {};
    double midpoints[definition::NF4_LEVELS - 1];
    hc_midpoints(definition::NF4_LEVEL, definition::NF4_LEVELS, midpoints);
    for (threadIdx.x = 0; threadIdx.x < CELLS; threadIdx.x++)
        make_cells(table);
    counts[0] = counts[1] = counts[2] = 0;
    const float most[] = {127, 7, 448, 6, 1};
    for (uint64_t bits = first; bits <= UINT32_MAX; bits += step) {
        const float x = hc_f32_from_bits((uint32_t)bits);
        uint32_t code = 0;
        const bool sure = quick_code(kind, x, scale, table, &code);
        counts[0] += sure;
        counts[1] += sure && code != exact_code(kind, x, scale, midpoints);
        counts[2] += fabsf(x) <= most[kind] * scale;
    }
}
