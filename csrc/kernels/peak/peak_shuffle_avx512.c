/* peak_shuffle, 64 bytes an instruction: kernels/peak/peak.h. */
#include "kernels/peak/peak.h"

#include <immintrin.h>

int64_t hc_peak_shuffle_avx512(int64_t steps, void *state) {
    __m128i *const chain = state;
    const __m128i index = _mm_setr_epi8(3, 10, 1, 8, 15, 6, 13, 4, 11, 2, 9, 0, 7, 14, 5, 12);
    const __m512i index_u8x64 = _mm512_broadcast_i32x4(index);
    __m512i x_u8x64[HC_PEAK_CHAINS];
#pragma GCC unroll 12
    for (int i = 0; i < HC_PEAK_CHAINS; i++)
        x_u8x64[i] = _mm512_broadcast_i32x4(_mm_loadu_si128(chain + i));
    for (int64_t step = 0; step < steps; step++) {
#pragma GCC unroll 12
        for (int i = 0; i < HC_PEAK_CHAINS; i++) {
            x_u8x64[i] = _mm512_shuffle_epi8(x_u8x64[i], index_u8x64);
            HC_PEAK_OPAQUE(x_u8x64[i]);
        }
    }
#pragma GCC unroll 12
    for (int i = 0; i < HC_PEAK_CHAINS; i++)
        _mm_storeu_si128(chain + i, _mm512_castsi512_si128(x_u8x64[i]));
    return steps > 0 ? HC_PEAK_CHAINS : 0;
}
