/* Small floats to elements as float32, scales apart. */
#include "kernels/decode_elements_avx2.h"

#include "kernels/decode_float.h"

int64_t hc_codes_float_avx2(const hc_format *format, const hc_geometry *geometry, const hc_components *components,
                            const hc_tile *tile, const hc_code_tile *out) {
    if (format->option[0] < FIRST_SMALL) {
        for (int64_t i = 0; i < tile->rows; i++)
            out->row_scale[i] = 1;
        return wide_rows(format, components, tile, out->codes, out->codes_ld);
    }
    return decode_codes(format, geometry, components, tile, out);
}
