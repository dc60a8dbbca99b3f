/* The last steps of sums in a chain, by the kernels for each of them: a tile of values stays in L1; kernels/conv/conv.h. */
#include "kernels/kernel.h"

#define HC_LINK_S32(isa)                                                                                               \
    uint32_t hc_link_s32_##isa(int64_t rows, int64_t columns, const hc_link_tile *tile, uint32_t largest) {            \
        float values[HC_LINK_ROWS * HC_LINK_COLUMNS], scales[HC_LINK_ROWS] = {0};                                      \
        float *to = tile->to ? tile->to : values;                                                                      \
        const int64_t step = tile->to ? tile->step : HC_LINK_COLUMNS;                                                  \
        for (int64_t i = 0; i < rows; i++)                                                                             \
            scales[i] = tile->scale;                                                                                   \
        hc_dequantize_s32_##isa(rows, columns, tile->sums, tile->ld, scales, tile->scales, to, step);                  \
        largest =                                                                                                      \
            hc_link_f32_##isa(rows, columns, to, step, &tile->steps, tile->bias, tile->plus, tile->step, largest);     \
        for (int64_t i = 0; i < rows && tile->codes; i++)                                                              \
            hc_codes_s8_##isa(to + i * step, columns, tile->code_scale, HC_PANEL_U8, tile->codes[i] + tile->at);       \
        return largest;                                                                                                \
    }
