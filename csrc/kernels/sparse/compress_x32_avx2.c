/* What is kept, side by side: pext brings the places of what is kept of 8 columns to the front. */
#include "kernels/kernel.h"

#include <immintrin.h>

int64_t hc_compress_x32_avx2(int64_t columns, const uint64_t *masks, const float *x, float *out) {
    float *to = out;
    int64_t k = 0;
    for (; k + 8 <= columns; k += 8) {
        const unsigned bits = (unsigned)(masks[k / 64] >> (k % 64) & 0xff);
        const uint64_t bytes = _pdep_u64(bits, 0x0101010101010101u) * 0xff;
        const uint64_t kept = _pext_u64(0x0706050403020100u, bytes);
        const __m256i order = _mm256_cvtepu8_epi32(_mm_cvtsi64_si128((long long)kept));
        _mm256_storeu_ps(to, _mm256_permutevar8x32_ps(_mm256_loadu_ps(x + k), order));
        to += _mm_popcnt_u32(bits);
    }
    for (; k < columns; k++)
        if (masks[k / 64] >> (k % 64) & 1)
            *to++ = x[k];
    return to - out;
}
