/* One segment of a grouped matmul with 64-bit sums; kernels/gemm/gemm.h. */
#include "kernels/kernel.h"

#include <math.h>

void hc_scale_s64_scalar(int64_t rows, int64_t columns, const int64_t *dots, const float *scale_a, const float *scale_b,
                         float *c) {
    for (int64_t i = 0; i < rows; i++)
        for (int64_t j = 0; j < columns; j++) {
            const float scale = scale_a[i] * scale_b[j];
            c[i * columns + j] = fmaf(scale, (float)dots[i * columns + j], c[i * columns + j]);
        }
}
