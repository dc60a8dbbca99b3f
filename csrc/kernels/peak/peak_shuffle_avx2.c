/* peak_shuffle, 32 bytes an instruction: kernels/peak/peak.h. */
#include "kernels/peak/peak.h"

#include <immintrin.h>

int64_t hc_peak_shuffle_avx2(int64_t steps, void *state) {
    __m128i *const chain = state;
    const __m128i index = _mm_setr_epi8(3, 10, 1, 8, 15, 6, 13, 4, 11, 2, 9, 0, 7, 14, 5, 12);
    const __m256i index_u8x32 = _mm256_broadcastsi128_si256(index);
    __m256i x_u8x32[HC_PEAK_CHAINS];
#pragma GCC unroll 12
    for (int i = 0; i < HC_PEAK_CHAINS; i++)
        x_u8x32[i] = _mm256_broadcastsi128_si256(_mm_loadu_si128(chain + i));
    for (int64_t step = 0; step < steps; step++) {
#pragma GCC unroll 12
        for (int i = 0; i < HC_PEAK_CHAINS; i++) {
            x_u8x32[i] = _mm256_shuffle_epi8(x_u8x32[i], index_u8x32);
            HC_PEAK_OPAQUE(x_u8x32[i]);
        }
    }
#pragma GCC unroll 12
    for (int i = 0; i < HC_PEAK_CHAINS; i++)
        _mm_storeu_si128(chain + i, _mm256_castsi256_si128(x_u8x32[i]));
    return steps > 0 ? HC_PEAK_CHAINS : 0;
}
