/* peak_dot on 8 lanes: kernels/peak/peak.h. Exact for all bytes, hence on 16 bits: vpmaddubsw would saturate. */
#include "kernels/peak/peak.h"

#include <immintrin.h>

int64_t hc_peak_dot_avx2(int64_t steps, void *state) {
    __m128i *const chain = state;
    __m256i a_i16x16 = _mm256_set1_epi32(2 << 16 | 1);
    const __m256i b_i16x16 = _mm256_set1_epi32(-6 * 65536 + 5);
    __m256i x_i32x8[HC_PEAK_CHAINS];
#pragma GCC unroll 12
    for (int i = 0; i < HC_PEAK_CHAINS; i++)
        x_i32x8[i] = _mm256_broadcastsi128_si256(_mm_loadu_si128(chain + i));
    for (int64_t step = 0; step < steps; step++) {
#pragma GCC unroll 12
        for (int i = 0; i < HC_PEAK_CHAINS; i++) {
            HC_PEAK_OPAQUE(a_i16x16);
            x_i32x8[i] = _mm256_add_epi32(x_i32x8[i], _mm256_madd_epi16(a_i16x16, b_i16x16));
            HC_PEAK_OPAQUE(x_i32x8[i]);
        }
#pragma GCC unroll 12
        for (int i = 0; i < HC_PEAK_CHAINS; i++) {
            HC_PEAK_OPAQUE(a_i16x16);
            x_i32x8[i] = _mm256_add_epi32(x_i32x8[i], _mm256_madd_epi16(a_i16x16, b_i16x16));
            HC_PEAK_OPAQUE(x_i32x8[i]);
        }
    }
#pragma GCC unroll 12
    for (int i = 0; i < HC_PEAK_CHAINS; i++)
        _mm_storeu_si128(chain + i, _mm256_castsi256_si128(x_i32x8[i]));
    return steps > 0 ? HC_PEAK_CHAINS * 8 * 8 : 0;
}
