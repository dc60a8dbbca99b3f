/* gemv_nibbles by its definition: for the scalar kernel, and the ends of rows of the others. */
#include "kernels/kernel.h"

static inline void spread_codes(const uint8_t *stored, int64_t row_bytes, int bits, int64_t n, uint8_t *out) {
    const uint32_t mask = (1u << bits) - 1;
    for (int64_t i = 0; i < n; i += 8, stored += bits, row_bytes -= bits) {
        uint32_t word = 0;
        for (int byte = 0; byte < hc_min(bits, row_bytes); byte++)
            word |= (uint32_t)stored[byte] << (8 * byte);
        for (int j = 0; j < 8; j += 2, word >>= 2 * bits)
            *out++ = (uint8_t)((word & mask) | (word >> bits & mask) << 4);
    }
}
