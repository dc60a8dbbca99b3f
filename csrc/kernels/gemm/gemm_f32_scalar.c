/* Definition of the tiled float32 matmul; kernels/gemm/gemm.h. */
#include "kernels/kernel.h"

#include <math.h>

enum { MR = 4, NR = 8 };

void hc_gemm_f32_scalar(int64_t k, const float *a, const float *b, float *c, int64_t ldc, bool accumulate, int rows,
                        int columns) {
    (void)rows, (void)columns;
    float sum[MR][NR];
    for (int i = 0; i < MR; i++)
        for (int j = 0; j < NR; j++)
            sum[i][j] = accumulate ? c[i * ldc + j] : 0.0f;
    for (; k > 0; k--, a += MR, b += NR)
        for (int i = 0; i < MR; i++)
            for (int j = 0; j < NR; j++)
                sum[i][j] = fmaf(a[i], b[j], sum[i][j]);
    for (int i = 0; i < MR; i++)
        for (int j = 0; j < NR; j++)
            c[i * ldc + j] = sum[i][j];
}
