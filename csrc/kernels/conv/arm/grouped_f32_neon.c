/* As many filters as channels in a group, 4 filters in lanes, of one group or two: hc_grouped_f32_neon;
 * kernels/conv/conv.h. A channel is copied to the lanes of its group's filters. 8 outputs are computed at a time, in 8
 * independent chains. */
#include "kernels/kernel.h"

#include <arm_neon.h>
#include <math.h>

enum { LANES = 4, EIGHT = 8 };

/* x[v] of the group of `run` channels to which each lane's filter belongs; x: of the first lane's group, or of lane
 * 0. */
__attribute__((always_inline)) static inline float32x4_t spread(const int run, const float *x, int v) {
    if (run != 2)
        return vdupq_n_f32(x[v]);
    const float32x4_t values = vld1q_f32(x);
    return v == 0 ? vtrn1q_f32(values, values) : vtrn2q_f32(values, values);
}

__attribute__((always_inline)) static inline void answers(const int n, const int run, int64_t taps,
                                                          const float *const *tap, const int64_t *step, int64_t at,
                                                          int64_t j, const float *panel, float *c, int64_t ldc) {
    const float *w = panel + j / EIGHT * EIGHT * taps * run + j % EIGHT;
    float32x4_t sum[EIGHT];
#pragma GCC unroll 8
    for (int i = 0; i < n; i++)
        sum[i] = vdupq_n_f32(0);
    for (int64_t t = 0; t < taps; t++) {
        const float *x = tap[t] + at * step[t] + (run == EIGHT ? j / EIGHT * EIGHT : j);
#pragma GCC unroll 8
        for (int v = 0; v < run; v++, w += EIGHT) {
            const float32x4_t filters = vld1q_f32(w);
#pragma GCC unroll 8
            for (int i = 0; i < n; i++)
                sum[i] = vfmaq_f32(sum[i], spread(run, x + i * step[t], v), filters);
        }
    }
#pragma GCC unroll 8
    for (int i = 0; i < n; i++)
        vst1q_f32(c + (at + i) * ldc + j, sum[i]);
}

__attribute__((always_inline)) static inline void rows(const int run, int64_t taps, const float *const *tap,
                                                       const int64_t *step, const float *panel, int64_t n,
                                                       int64_t count, float *c, int64_t ldc) {
    int64_t j = 0;
    for (; j + LANES <= count; j += LANES) {
        int64_t i = 0;
        for (; i + EIGHT <= n; i += EIGHT)
            answers(EIGHT, run, taps, tap, step, i, j, panel, c, ldc);
        for (; i < n; i++)
            answers(1, run, taps, tap, step, i, j, panel, c, ldc);
    }
    for (; j < count; j++)
        for (int64_t i = 0; i < n; i++) {
            const float *w = panel + j / EIGHT * EIGHT * taps * run + j % EIGHT;
            float sum = 0.0f;
            for (int64_t t = 0; t < taps; t++)
                for (int v = 0; v < run; v++, w += EIGHT)
                    sum = fmaf(tap[t][i * step[t] + j / run * run + v], *w, sum);
            c[i * ldc + j] = sum;
        }
}

void hc_grouped_f32_neon(int run, int64_t taps, const float *const *tap, const int64_t *step, const float *panel,
                         int64_t n, int64_t count, float *c, int64_t ldc) {
    if (run == 8)
        rows(8, taps, tap, step, panel, n, count, c, ldc);
    else if (run == 4)
        rows(4, taps, tap, step, panel, n, count, c, ldc);
    else
        rows(2, taps, tap, step, panel, n, count, c, ldc);
}
