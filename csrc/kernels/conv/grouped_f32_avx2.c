/* As many filters as channels in a group, 8 filters in lanes, of one group or several: hc_grouped_f32_avx2;
 * kernels/conv/conv.h. A channel is copied to the lanes of its group's filters. Outputs times registers of 8 filters
 * are 8, so that 8 chains are independent. */
#include "kernels/kernel.h"

#include <immintrin.h>
#include <math.h>

enum { LANES = 8, CHAINS = 8 };

__attribute__((always_inline)) static inline void answers(const int n, const int eights, const int run, int64_t taps,
                                                          const float *const *tap, const int64_t *step, int64_t at,
                                                          int64_t j, const float *panel, float *c, int64_t ldc) {
    const int64_t panel_step = taps * run * LANES;
    const float *w = panel + j * taps * run;
    __m256 sum[CHAINS];
#pragma GCC unroll 8
    for (int s = 0; s < n * eights; s++)
        sum[s] = _mm256_setzero_ps();
    for (int64_t t = 0; t < taps; t++) {
        const float *x = tap[t] + at * step[t] + j;
#pragma GCC unroll 8
        for (int v = 0; v < run; v++, w += LANES) {
            /* For 4 adjacent lanes: v of a group of 4; v and 2 + v of two groups of 2. */
            const __m256i from = run == 4 ? _mm256_set1_epi32(v) : _mm256_set1_epi64x(0);
            const __m256i lanes = run == 2 ? _mm256_setr_epi32(v, v, 2 + v, 2 + v, v, v, 2 + v, 2 + v) : from;
#pragma GCC unroll 8
            for (int e = 0; e < eights; e++) {
                const __m256 filters = _mm256_loadu_ps(w + e * panel_step);
#pragma GCC unroll 8
                for (int i = 0; i < n; i++) {
                    const float *values = x + i * step[t] + e * LANES;
                    const __m256 spread = run == 8 ? _mm256_broadcast_ss(values + v)
                                                   : _mm256_permutevar_ps(_mm256_loadu_ps(values), lanes);
                    sum[e * n + i] = _mm256_fmadd_ps(spread, filters, sum[e * n + i]);
                }
            }
        }
    }
#pragma GCC unroll 8
    for (int e = 0; e < eights; e++)
#pragma GCC unroll 8
        for (int i = 0; i < n; i++)
            _mm256_storeu_ps(c + (at + i) * ldc + j + e * LANES, sum[e * n + i]);
}

/* n outputs from `at` on: all registers of 8 filters, several at once and then one by one. */
__attribute__((always_inline)) static inline void row(const int n, const int run, int64_t taps, const float *const *tap,
                                                      const int64_t *step, int64_t at, const float *panel,
                                                      int64_t count, float *c, int64_t ldc) {
    enum { MOST = 4 };
    const int eights = CHAINS / n < MOST ? CHAINS / n : MOST;
    int64_t j = 0;
    for (; j + eights * LANES <= count; j += eights * LANES)
        answers(n, eights, run, taps, tap, step, at, j, panel, c, ldc);
    for (; j + LANES <= count; j += LANES)
        answers(n, 1, run, taps, tap, step, at, j, panel, c, ldc);
    for (; j < count; j++)
        for (int i = 0; i < n; i++) {
            const float *w = panel + j / LANES * LANES * taps * run + j % LANES;
            float sum = 0.0f;
            for (int64_t t = 0; t < taps; t++)
                for (int v = 0; v < run; v++, w += LANES)
                    sum = fmaf(tap[t][(at + i) * step[t] + j / run * run + v], *w, sum);
            c[(at + i) * ldc + j] = sum;
        }
}

__attribute__((always_inline)) static inline void rows(const int run, int64_t taps, const float *const *tap,
                                                       const int64_t *step, const float *panel, int64_t n,
                                                       int64_t count, float *c, int64_t ldc) {
    int64_t i = 0;
    for (; i + 8 <= n; i += 8)
        row(8, run, taps, tap, step, i, panel, count, c, ldc);
    for (; i + 4 <= n; i += 4)
        row(4, run, taps, tap, step, i, panel, count, c, ldc);
    for (; i < n; i++)
        row(1, run, taps, tap, step, i, panel, count, c, ldc);
}

void hc_grouped_f32_avx2(int run, int64_t taps, const float *const *tap, const int64_t *step, const float *panel,
                         int64_t n, int64_t count, float *c, int64_t ldc) {
    if (run == 8)
        rows(8, taps, tap, step, panel, n, count, c, ldc);
    else if (run == 4)
        rows(4, taps, tap, step, panel, n, count, c, ldc);
    else
        rows(2, taps, tap, step, panel, n, count, c, ldc);
}
