/* The int8 product of what 2:4 keeps; kernels/kernel.h. What is kept goes back between zeros first, which compilers turn
 * into better code than a value picked at a time. Sums are unsigned here, so that they wrap. */
#include "kernels/kernel.h"

hc_sparse_s8_fn hc_sparse_s8_scalar;

enum { MR = 8, NR = 8, KR = 8 };

void hc_sparse_s8_scalar(int64_t n_steps, const void *a, const int8_t *b, const int32_t *init, int32_t *c) {
    const int16_t *words = a;
    uint32_t sum[MR][NR];
    for (int i = 0; i < MR; i++)
        for (int j = 0; j < NR; j++)
            sum[i][j] = (uint32_t)init[j];
    for (; n_steps > 0; n_steps--, words += MR * KR, b += NR * KR) {
        int16_t whole[NR][KR] = {{0}};
        for (int j = 0; j < NR; j++)
            for (int t = 0; t < 4; t++)
                whole[j][b[NR * 4 + j * 4 + t]] += b[j * 4 + t];
        for (int i = 0; i < MR; i++)
            for (int j = 0; j < NR; j++)
                for (int k = 0; k < KR; k++)
                    sum[i][j] += (uint32_t)(words[i * KR + k] * whole[j][k]);
    }
    for (int i = 0; i < MR; i++)
        for (int j = 0; j < NR; j++)
            c[i * NR + j] = (int32_t)sum[i][j];
}
