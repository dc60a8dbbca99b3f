/* Definition of the int8 matmul; kernels/gemm/gemm.h. Sums are unsigned here, so that they wrap. */
#include "kernels/kernel.h"

enum { MR = 4, NR = 8, KR = 4 };

void hc_gemm_s8_scalar(int64_t n_steps, const void *a, const int8_t *b, const int32_t *init, int32_t *c) {
    const int16_t *words = a;
    uint32_t sum[MR][NR];
    for (int i = 0; i < MR; i++)
        for (int j = 0; j < NR; j++)
            sum[i][j] = (uint32_t)init[j];
    for (; n_steps > 0; n_steps--, words += MR * KR, b += NR * KR)
        for (int i = 0; i < MR; i++)
            for (int j = 0; j < NR; j++)
                for (int k = 0; k < KR; k++)
                    sum[i][j] += (uint32_t)(words[i * KR + k] * b[j * KR + k]);
    for (int i = 0; i < MR; i++)
        for (int j = 0; j < NR; j++)
            c[i * NR + j] = (int32_t)sum[i][j];
}
