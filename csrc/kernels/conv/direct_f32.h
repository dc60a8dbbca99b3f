/* A tile of a convolution: up to MR windows by registers of filters, as in gemm_f32; windows are read in place. Included
 * after a header of base/lanes/. */
#include "kernels/kernel.h"

#include <string.h>

enum { MR = 6, NR = 16 };

__attribute__((always_inline)) static inline void tile(const int n, const int registers, int64_t taps, int64_t run,
                                                       const float *const *rows, const float *panel, int64_t tap_step,
                                                       int64_t step, int columns, float *c, int64_t ldc) {
    lanes sum[MR][NR / LANES];
#pragma GCC unroll 8
    for (int i = 0; i < n; i++)
#pragma GCC unroll 4
        for (int h = 0; h < registers; h++)
            sum[i][h] = lanes_of(0);
    for (int64_t t = 0; t < taps; t++, rows += MR, panel += tap_step) {
        const float *filter = panel;
        for (int64_t v = 0; v < run; v++, filter += step) {
            lanes filters[NR / LANES];
#pragma GCC unroll 4
            for (int h = 0; h < registers; h++)
                filters[h] = lanes_load(filter + LANES * h);
#pragma GCC unroll 8
            for (int i = 0; i < n; i++) {
                const lanes x = lanes_of(rows[i][v]);
#pragma GCC unroll 4
                for (int h = 0; h < registers; h++)
                    sum[i][h] = lanes_fma(x, filters[h], sum[i][h]);
            }
        }
    }
    const bool full = columns == LANES * registers;
#pragma GCC unroll 8
    for (int i = 0; i < n; i++) {
        float own[NR], *to = full ? c + i * ldc : own;
#pragma GCC unroll 4
        for (int h = 0; h < registers; h++)
            lanes_store(to + LANES * h, sum[i][h]);
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
HC_TILES(tiles, NR / LANES)
HC_TILES(half_tiles, NR / LANES / 2)

#define HC_DIRECT_F32(isa)                                                                                             \
    void hc_direct_f32_##isa(int64_t taps, int64_t run, const float *const *rows, const float *panel,                  \
                             int64_t tap_step, int64_t step, int n_rows, int columns, float *c, int64_t ldc) {         \
        if (columns > NR / 2)                                                                                          \
            tiles(taps, run, rows, panel, tap_step, step, n_rows, columns, c, ldc);                                    \
        else                                                                                                           \
            half_tiles(taps, run, rows, panel, tap_step, step, n_rows, columns, c, ldc);                               \
    }
