/* Definition of a tile of an integer convolution; kernels/conv/conv.h. Sums are unsigned here, so that they wrap. */
#include "kernels/kernel.h"

enum { NR = 8 };

void hc_direct_s8_scalar(int64_t taps, const int64_t *tap, int64_t run, const void *const *rows, const int8_t *panel,
                         const int32_t *init, int n_rows, int columns, int32_t *c, int64_t ldc) {
    (void)columns;
    for (int i = 0; i < n_rows; i++) {
        uint32_t sum[NR];
        for (int j = 0; j < NR; j++)
            sum[j] = (uint32_t)init[j];
        const int8_t *b = panel;
        for (int64_t t = 0; t < taps; t++) {
            const int16_t *x = (const int16_t *)rows[i] + tap[t];
            for (int64_t v = 0; v < run; v += 4, b += 4 * NR)
                for (int j = 0; j < NR; j++)
                    for (int k = 0; k < 4; k++)
                        sum[j] += (uint32_t)(x[v + k] * b[j * 4 + k]);
        }
        for (int j = 0; j < NR; j++)
            c[i * ldc + j] = (int32_t)sum[j];
    }
}
