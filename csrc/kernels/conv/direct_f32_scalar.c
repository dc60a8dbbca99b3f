/* Definition of a tile of a convolution; kernels/conv/conv.h. */
#include "kernels/kernel.h"

#include <math.h>

enum { MR = 4, NR = 8 };

void hc_direct_f32_scalar(int64_t taps, int64_t run, const float *const *rows, const float *panel, int64_t tap_step,
                          int64_t step, int n_rows, int columns, float *c, int64_t ldc) {
    float sum[MR][NR] = {{0}};
    for (int64_t t = 0; t < taps; t++, rows += MR, panel += tap_step)
        for (int64_t v = 0; v < run; v++)
            for (int i = 0; i < n_rows; i++)
                for (int j = 0; j < NR; j++)
                    sum[i][j] = fmaf(rows[i][v], panel[v * step + j], sum[i][j]);
    for (int i = 0; i < n_rows; i++)
        for (int j = 0; j < columns; j++)
            c[i * ldc + j] = sum[i][j];
}
