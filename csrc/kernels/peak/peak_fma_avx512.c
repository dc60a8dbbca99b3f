/* peak_fma on 16 lanes: kernels/peak/peak.h. */
#include "kernels/peak/peak.h"

#include <immintrin.h>

int64_t hc_peak_fma_avx512(int64_t steps, void *state) {
    float *const chain = state;
    const __m512 half = _mm512_set1_ps(-0.5f), one = _mm512_set1_ps(1.0f);
    __m512 x_f32x16[HC_PEAK_CHAINS];
#pragma GCC unroll 12
    for (int i = 0; i < HC_PEAK_CHAINS; i++)
        x_f32x16[i] = _mm512_broadcast_f32x4(_mm_loadu_ps(chain + 4 * i));
    for (int64_t step = 0; step < steps; step++) {
#pragma GCC unroll 12
        for (int i = 0; i < HC_PEAK_CHAINS; i++)
            x_f32x16[i] = _mm512_fmadd_ps(x_f32x16[i], half, one);
    }
#pragma GCC unroll 12
    for (int i = 0; i < HC_PEAK_CHAINS; i++)
        _mm_storeu_ps(chain + 4 * i, _mm512_castps512_ps128(x_f32x16[i]));
    return steps > 0 ? HC_PEAK_CHAINS * 16 * 2 : 0;
}
