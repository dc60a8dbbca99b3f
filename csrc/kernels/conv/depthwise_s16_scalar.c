/* Definition of one filter per channel, of integers; kernels/conv/conv.h. */
#include "kernels/kernel.h"

void hc_depthwise_s16_scalar(int64_t pairs, const int64_t *tap, int64_t step, const int16_t *x, const int16_t *panel,
                             int64_t ld, int64_t n, int64_t count, int32_t *c, int64_t ldc) {
    for (int64_t i = 0; i < n; i++)
        for (int64_t j = 0; j < count; j++) {
            uint32_t sum = 0;
            for (int64_t t = 0; t < 2 * pairs; t++)
                sum += (uint32_t)(x[i * step + tap[t] + j] * panel[(t / 2 * ld + j) * 2 + t % 2]);
            c[i * ldc + j] = (int32_t)sum;
        }
}
