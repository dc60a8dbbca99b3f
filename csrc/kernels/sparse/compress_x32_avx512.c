/* What is kept, side by side, 16 columns at a time: in registers, since Zen 4 compresses into memory slowly. */
#include "kernels/kernel.h"

#include <immintrin.h>

int64_t hc_compress_x32_avx512(int64_t columns, const uint64_t *masks, const float *x, float *out) {
    float *to = out;
    int64_t k = 0;
    for (; k + 64 <= columns; k += 64) {
        const uint64_t *mask = masks + k / 64;
#pragma GCC unroll 4
        for (int i = 0; i < 4; i++) {
            const __mmask16 kept = _load_mask16((__mmask16 *)(uintptr_t)mask + i);
            _mm512_storeu_ps(to, _mm512_maskz_compress_ps(kept, _mm512_loadu_ps(x + k + 16 * i)));
            to += _mm_popcnt_u32((unsigned)(*mask >> 16 * i) & 0xffff);
        }
    }
    for (; k < columns; k++)
        if (masks[k / 64] >> (k % 64) & 1)
            *to++ = x[k];
    return to - out;
}
