/* Definition of a tile of int16: hc_direct_s16_scalar; kernels/conv/conv.h. Sums are unsigned here, so that they
 * wrap. */
#include "kernels/kernel.h"

enum { NR = 8 };

void hc_direct_s16_scalar(int64_t pairs, const int16_t *const *rows, const int16_t *panel, int n_rows, int32_t *c,
                          int64_t ldc) {
    for (int i = 0; i < n_rows; i++) {
        uint32_t sum[NR] = {0};
        for (int64_t k = 0; k < 2 * pairs; k++)
            for (int j = 0; j < NR; j++)
                sum[j] += (uint32_t)(rows[i][k] * panel[(k / 2 * NR + j) * 2 + k % 2]);
        for (int j = 0; j < NR; j++)
            c[i * ldc + j] = (int32_t)sum[j];
    }
}
