/* Microscaling to float32. */
#include "kernels/decode_elements_avx512.h"

#include "kernels/decode_mx.h"

int64_t hc_values_mx_avx512(const hc_format *format, const hc_geometry *geometry, const hc_components *components,
                            const hc_tile *tile, float *values, int64_t ld) {
    return decode_values(format, geometry, components, tile, values, ld);
}
