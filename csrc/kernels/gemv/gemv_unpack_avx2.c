/* gemv_unpack: 8 codes at a time by PDEP. */
#include "kernels/kernel.h"

#include <immintrin.h>
#include <string.h>

void hc_gemv_unpack_avx2(const uint8_t *stored, int64_t row_bytes, int bits, int64_t n, uint8_t *out) {
    const uint64_t mask = 0x0101010101010101u * ((1u << bits) - 1);
    const uint8_t *const end = stored + row_bytes;
    int64_t i = 0;
    for (; i < n && end - stored >= 8; i += 8, stored += bits) {
        uint64_t word;
        memcpy(&word, stored, 8);
        word = _pdep_u64(word, mask);
        memcpy(out + i, &word, 8);
    }
    for (; i < n; i += 8, stored += bits) {
        uint64_t word = 0;
        memcpy(&word, stored, (size_t)hc_min(bits, end - stored));
        word = _pdep_u64(word, mask);
        memcpy(out + i, &word, 8);
    }
}
