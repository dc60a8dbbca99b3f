/* Small floats to float32. */
#include "kernels/decode_elements_avx2.h"

#include "kernels/decode_float.h"

int64_t hc_values_float_avx2(const hc_format *format, const hc_geometry *geometry, const hc_components *components,
                             const hc_tile *tile, float *values, int64_t ld) {
    if (format->option[0] < FIRST_SMALL)
        return wide_rows(format, components, tile, values, ld);
    return decode_values(format, geometry, components, tile, values, ld);
}
