/* Products of lists of activations with rows of weights: the sums of a pixel stay in up to 8 registers while its list
 * is walked; each activation is broadcast once and meets a row of weights, memory operands. */
#include "kernels/kernel.h"

#include <immintrin.h>

enum { LANES = 8 };

static inline __attribute__((always_inline)) void walk(const int registers, const bool guarded, int64_t count,
                                                       const int32_t *starts, int64_t step, const float *values,
                                                       const uint8_t *at, const float *panel, float *to) {
    for (int64_t i = 0; i < count; i++, starts += step, to += registers * LANES) {
        const int32_t end = starts[1];
        if (starts[0] == end)
            continue;
        __m256 sum[8];
#pragma GCC unroll 8
        for (int r = 0; r < registers; r++)
            sum[r] = _mm256_loadu_ps(to + r * LANES);
        for (int32_t t = starts[0]; t < end; t++) {
            const __m256 x = _mm256_set1_ps(values[t]);
            const float *weights = panel + at[t] * registers * LANES;
#pragma GCC unroll 8
            for (int r = 0; r < registers; r++) {
                const __m256 w = _mm256_loadu_ps(weights + r * LANES), more = _mm256_fmadd_ps(x, w, sum[r]);
                sum[r] =
                    guarded ? _mm256_blendv_ps(sum[r], more, _mm256_cmp_ps(w, _mm256_setzero_ps(), _CMP_NEQ_UQ)) : more;
            }
        }
#pragma GCC unroll 8
        for (int r = 0; r < registers; r++)
            _mm256_storeu_ps(to + r * LANES, sum[r]);
    }
}

#define WALK(registers)                                                                                                \
    case (registers) * LANES:                                                                                          \
        if (guarded)                                                                                                   \
            walk(registers, true, count, starts, step, values, at, panel, to);                                         \
        else                                                                                                           \
            walk(registers, false, count, starts, step, values, at, panel, to);                                        \
        break

void hc_outer_f32_avx2(int64_t count, const int32_t *starts, int64_t step, const float *values, const uint8_t *at,
                       const float *panel, int lanes, bool guarded, float *to) {
    switch (lanes) {
        WALK(2);
        WALK(4);
        WALK(6);
        WALK(8);
    }
}
