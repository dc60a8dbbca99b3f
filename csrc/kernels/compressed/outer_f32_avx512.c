/* Products of lists of activations with rows of weights: the sums of a pixel stay in up to 4 registers while its list
 * is walked; each activation is broadcast once and meets a row of weights, memory operands. */
#include "kernels/kernel.h"

#include <immintrin.h>

enum { LANES = 16 };

static inline __attribute__((always_inline)) void walk(const int registers, const bool guarded, int64_t count,
                                                       const int32_t *starts, int64_t step, const float *values,
                                                       const uint8_t *at, const float *panel, float *to) {
    for (int64_t i = 0; i < count; i++, starts += step, to += registers * LANES) {
        const int32_t end = starts[1];
        if (starts[0] == end)
            continue;
        __m512 sum[4];
#pragma GCC unroll 4
        for (int r = 0; r < registers; r++)
            sum[r] = _mm512_loadu_ps(to + r * LANES);
        for (int32_t t = starts[0]; t < end; t++) {
            const __m512 x = _mm512_set1_ps(values[t]);
            const float *weights = panel + at[t] * registers * LANES;
#pragma GCC unroll 4
            for (int r = 0; r < registers; r++) {
                const __m512 w = _mm512_loadu_ps(weights + r * LANES);
                if (guarded)
                    sum[r] =
                        _mm512_mask3_fmadd_ps(x, w, sum[r], _mm512_cmp_ps_mask(w, _mm512_setzero_ps(), _CMP_NEQ_UQ));
                else
                    sum[r] = _mm512_fmadd_ps(x, w, sum[r]);
            }
        }
#pragma GCC unroll 4
        for (int r = 0; r < registers; r++)
            _mm512_storeu_ps(to + r * LANES, sum[r]);
    }
}

#define WALK(registers)                                                                                                \
    case (registers) * LANES:                                                                                          \
        if (guarded)                                                                                                   \
            walk(registers, true, count, starts, step, values, at, panel, to);                                         \
        else                                                                                                           \
            walk(registers, false, count, starts, step, values, at, panel, to);                                        \
        break

void hc_outer_f32_avx512(int64_t count, const int32_t *starts, int64_t step, const float *values, const uint8_t *at,
                         const float *panel, int lanes, bool guarded, float *to) {
    switch (lanes) {
        WALK(1);
        WALK(2);
        WALK(3);
        WALK(4);
    }
}
