/* gemv_nibbles, the definition. */
#include "kernels/gemv/gemv_nibbles.h"

void hc_gemv_nibbles_scalar(const uint8_t *stored, int64_t row_bytes, int bits, int64_t n, uint8_t *out) {
    spread_codes(stored, row_bytes, bits, n, out);
}
