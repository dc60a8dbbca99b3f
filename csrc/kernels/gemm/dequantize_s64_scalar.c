/* The final scaling of a folded matmul with 64-bit sums; kernels/gemm/gemm.h. */
#include "kernels/kernel.h"

void hc_dequantize_s64_scalar(int64_t rows, int64_t columns, const int64_t *c, int64_t ldc, const float *scale_a,
                              const float *scale_b, float *out, int64_t ldo) {
    for (int64_t i = 0; i < rows; i++)
        for (int64_t j = 0; j < columns; j++)
            out[i * ldo + j] = (float)((double)scale_a[i] * (double)scale_b[j] * (double)c[i * ldc + j]);
}
