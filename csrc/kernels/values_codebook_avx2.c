/* Codebooks to float32. */
#include "kernels/decode_elements_avx2.h"

#include "kernels/decode_codebook.h"

int64_t hc_values_codebook_avx2(const hc_format *format, const hc_geometry *geometry, const hc_components *components,
                                const hc_tile *tile, float *values, int64_t ld) {
    if (format->option[1] > 1)
        return HC_DECLINED;
    return decode_values(format, geometry, components, tile, values, ld);
}
