/* A tile of a convolution: 6 windows by up to 4 registers of filters; windows are read in place. */
#include "kernels/kernel.h"

#include <arm_neon.h>
#include <string.h>

enum { MR = 6, NR = 16, LANES = 4 };

__attribute__((always_inline)) static inline void tile(const int n, const int registers, int64_t taps, int64_t run,
                                                       const float *const *rows, const float *panel, int64_t tap_step,
                                                       int64_t step, int columns, float *c, int64_t ldc) {
    float32x4_t sum[MR][NR / LANES];
#pragma GCC unroll 6
    for (int i = 0; i < n; i++)
#pragma GCC unroll 4
        for (int h = 0; h < registers; h++)
            sum[i][h] = vdupq_n_f32(0);
    for (int64_t t = 0; t < taps; t++, rows += MR, panel += tap_step) {
        const float *filter = panel;
        for (int64_t v = 0; v < run; v++, filter += step) {
            float32x4_t filters[NR / LANES];
#pragma GCC unroll 4
            for (int h = 0; h < registers; h++)
                filters[h] = vld1q_f32(filter + LANES * h);
#pragma GCC unroll 6
            for (int i = 0; i < n; i++)
#pragma GCC unroll 4
                for (int h = 0; h < registers; h++)
                    sum[i][h] = vfmaq_n_f32(sum[i][h], filters[h], rows[i][v]);
        }
    }
    const bool full = columns == LANES * registers;
#pragma GCC unroll 6
    for (int i = 0; i < n; i++) {
        float own[NR], *to = full ? c + i * ldc : own;
#pragma GCC unroll 4
        for (int h = 0; h < registers; h++)
            vst1q_f32(to + LANES * h, sum[i][h]);
        if (!full)
            memcpy(c + i * ldc, own, (size_t)columns * sizeof *c);
    }
}

#define HC_CASE(n)                                                                                                     \
    case n:                                                                                                            \
        tile(n, registers, taps, run, rows, panel, tap_step, step, columns, c, ldc);                                   \
        break;
#define HC_TILES(name, of)                                                                                             \
    static void name(int64_t taps, int64_t run, const float *const *rows, const float *panel, int64_t tap_step,        \
                     int64_t step, int n_rows, int columns, float *c, int64_t ldc) {                                   \
        enum { registers = of };                                                                                       \
        switch (n_rows) { HC_CASE(1) HC_CASE(2) HC_CASE(3) HC_CASE(4) HC_CASE(5) HC_CASE(6) }                          \
    }
HC_TILES(four_registers, 4)
HC_TILES(two_registers, 2)

void hc_direct_f32_neon(int64_t taps, int64_t run, const float *const *rows, const float *panel, int64_t tap_step,
                        int64_t step, int n_rows, int columns, float *c, int64_t ldc) {
    if (columns > 2 * LANES)
        four_registers(taps, run, rows, panel, tap_step, step, n_rows, columns, c, ldc);
    else
        two_registers(taps, run, rows, panel, tap_step, step, n_rows, columns, c, ldc);
}
