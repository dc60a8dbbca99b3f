/* few_unpack: 8 codes at a time by PDEP. */
#include "kernels/decode_avx2.h"
#include "kernels/kernel.h"
#include "kernels/unpack.h"

void hc_few_unpack_avx2(const uint8_t *stored, int64_t row_bytes, int bits, int64_t n, uint8_t *out) {
    unpack_codes(stored, row_bytes, 0, n, bits, false, out);
}
