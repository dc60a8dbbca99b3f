/* peak_fma on 8 lanes: kernels/peak/peak.h. */
#include "kernels/peak/peak.h"

#include <immintrin.h>

int64_t hc_peak_fma_avx2(int64_t steps, void *state) {
    float *const chain = state;
    const __m256 half = _mm256_set1_ps(-0.5f), one = _mm256_set1_ps(1.0f);
    __m256 x_f32x8[HC_PEAK_CHAINS];
#pragma GCC unroll 12
    for (int i = 0; i < HC_PEAK_CHAINS; i++)
        x_f32x8[i] = _mm256_broadcast_ps((const __m128 *)(chain + 4 * i));
    for (int64_t step = 0; step < steps; step++) {
#pragma GCC unroll 12
        for (int i = 0; i < HC_PEAK_CHAINS; i++)
            x_f32x8[i] = _mm256_fmadd_ps(x_f32x8[i], half, one);
    }
#pragma GCC unroll 12
    for (int i = 0; i < HC_PEAK_CHAINS; i++)
        _mm_storeu_ps(chain + 4 * i, _mm256_castps256_ps128(x_f32x8[i]));
    return steps > 0 ? HC_PEAK_CHAINS * 8 * 2 : 0;
}
