/* peak_dot on 16 lanes without VNNI: kernels/peak/peak.h. Exact for all bytes, hence on 16 bits. */
#include "kernels/peak/peak.h"

#include <immintrin.h>

int64_t hc_peak_dot_avx512(int64_t steps, void *state) {
    __m128i *const chain = state;
    __m512i a_i16x32 = _mm512_set1_epi32(2 << 16 | 1);
    const __m512i b_i16x32 = _mm512_set1_epi32(-6 * 65536 + 5);
    __m512i x_i32x16[HC_PEAK_CHAINS];
#pragma GCC unroll 12
    for (int i = 0; i < HC_PEAK_CHAINS; i++)
        x_i32x16[i] = _mm512_broadcast_i32x4(_mm_loadu_si128(chain + i));
    for (int64_t step = 0; step < steps; step++) {
#pragma GCC unroll 12
        for (int i = 0; i < HC_PEAK_CHAINS; i++) {
            HC_PEAK_OPAQUE(a_i16x32);
            x_i32x16[i] = _mm512_add_epi32(x_i32x16[i], _mm512_madd_epi16(a_i16x32, b_i16x32));
            HC_PEAK_OPAQUE(x_i32x16[i]);
        }
#pragma GCC unroll 12
        for (int i = 0; i < HC_PEAK_CHAINS; i++) {
            HC_PEAK_OPAQUE(a_i16x32);
            x_i32x16[i] = _mm512_add_epi32(x_i32x16[i], _mm512_madd_epi16(a_i16x32, b_i16x32));
            HC_PEAK_OPAQUE(x_i32x16[i]);
        }
    }
#pragma GCC unroll 12
    for (int i = 0; i < HC_PEAK_CHAINS; i++)
        _mm_storeu_si128(chain + i, _mm512_castsi512_si128(x_i32x16[i]));
    return steps > 0 ? HC_PEAK_CHAINS * 16 * 8 : 0;
}
