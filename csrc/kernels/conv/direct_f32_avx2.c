/* A tile of a convolution: 6 windows by 1 or 2 registers of filters, as in gemm_f32; windows are read in place. */
#include "kernels/kernel.h"

#include <immintrin.h>
#include <string.h>

enum { MR = 6, NR = 16, LANES = 8 };

__attribute__((always_inline)) static inline void tile(const int n, const int registers, int64_t taps, int64_t run,
                                                       const float *const *rows, const float *panel, int64_t tap_step,
                                                       int64_t step, int columns, float *c, int64_t ldc) {
    __m256 sum[MR][2];
#pragma GCC unroll 8
    for (int i = 0; i < n; i++)
        sum[i][0] = sum[i][1] = _mm256_setzero_ps();
    for (int64_t t = 0; t < taps; t++, rows += MR, panel += tap_step) {
        const float *filter = panel;
        for (int64_t v = 0; v < run; v++, filter += step) {
            __m256 filters[2];
#pragma GCC unroll 2
            for (int h = 0; h < registers; h++)
                filters[h] = _mm256_loadu_ps(filter + LANES * h);
#pragma GCC unroll 8
            for (int i = 0; i < n; i++) {
                const __m256 x = _mm256_broadcast_ss(rows[i] + v);
#pragma GCC unroll 2
                for (int h = 0; h < registers; h++)
                    sum[i][h] = _mm256_fmadd_ps(x, filters[h], sum[i][h]);
            }
        }
    }
    const bool full = columns == LANES * registers;
#pragma GCC unroll 8
    for (int i = 0; i < n; i++) {
        float own[NR], *to = full ? c + i * ldc : own;
#pragma GCC unroll 2
        for (int h = 0; h < registers; h++)
            _mm256_storeu_ps(to + LANES * h, sum[i][h]);
        if (!full)
            memcpy(c + i * ldc, own, (size_t)columns * sizeof *c);
    }
}

void hc_direct_f32_avx2(int64_t taps, int64_t run, const float *const *rows, const float *panel, int64_t tap_step,
                        int64_t step, int n_rows, int columns, float *c, int64_t ldc) {
    switch (n_rows + (columns > LANES ? 0 : MR)) {
#define HC_CASE(n)                                                                                                     \
    case n:                                                                                                            \
        tile(n, 2, taps, run, rows, panel, tap_step, step, columns, c, ldc);                                           \
        break;                                                                                                         \
    case MR + n:                                                                                                       \
        tile(n, 1, taps, run, rows, panel, tap_step, step, columns, c, ldc);                                           \
        break;
        HC_CASE(1) HC_CASE(2) HC_CASE(3) HC_CASE(4) HC_CASE(5) HC_CASE(6)
#undef HC_CASE
    }
}
