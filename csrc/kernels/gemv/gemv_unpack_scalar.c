/* gemv_unpack, the definition. */
#include "kernels/kernel.h"

void hc_gemv_unpack_scalar(const uint8_t *stored, int64_t row_bytes, int bits, int64_t n, uint8_t *out) {
    uint32_t pending = 0;
    int n_pending = 0;
    (void)row_bytes;
    for (int64_t i = 0; i < n; i++) {
        if (n_pending < bits) {
            pending |= (uint32_t)*stored++ << n_pending;
            n_pending += 8;
        }
        out[i] = (uint8_t)(pending & ((1u << bits) - 1));
        pending >>= bits;
        n_pending -= bits;
    }
}
