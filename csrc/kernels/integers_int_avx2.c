/* Uniform integers to the integers of products. */
#include "kernels/decode_avx2.h"

#include "kernels/decode_int.h"

int64_t hc_integers_int_avx2(const hc_format *format, const hc_geometry *geometry, const hc_components *components,
                             const hc_tile *tile, hc_int_mode mode, const hc_int_tile *out) {
    return decode_integers(format, geometry, components, tile, mode, count_limbs(format, mode), out);
}
