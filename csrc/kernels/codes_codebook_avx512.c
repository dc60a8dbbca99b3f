/* Codebooks to centroids as float32, scales apart. */
#include "kernels/decode_elements_avx512.h"

#include "kernels/decode_codebook.h"

int64_t hc_codes_codebook_avx512(const hc_format *format, const hc_geometry *geometry, const hc_components *components,
                                 const hc_tile *tile, const hc_code_tile *out) {
    if (format->option[1] > 1)
        return HC_DECLINED;
    return decode_codes(format, geometry, components, tile, out);
}
