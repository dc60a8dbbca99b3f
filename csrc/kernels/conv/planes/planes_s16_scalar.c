/* Definition of planes of pairs of codes; kernels/conv/conv.h. */
#include "kernels/kernel.h"

#include <string.h>

enum { NR = 4 };

void hc_planes_s16_scalar(int64_t taps, const int64_t *tap, int64_t pairs, int64_t plane, const int32_t *panel,
                          int64_t filters, const hc_code_block *block, int blocks, int64_t ldc, const double *scale,
                          const float *bias, bool relu) {
    for (int b = 0; b < blocks; b++)
        for (int64_t f = 0; f < filters; f++)
            for (int64_t i = 0; i < block[b].n; i++) {
                uint32_t sum = 0;
                for (int64_t t = 0; t < taps; t++)
                    for (int64_t v = 0; v < pairs; v++) {
                        int16_t x[2], w[2];
                        memcpy(x, block[b].x + tap[t] + v * plane + i, sizeof x);
                        memcpy(w, panel + (f / NR * taps * pairs + t * pairs + v) * NR + f % NR, sizeof w);
                        sum += (uint32_t)(x[0] * w[0]) + (uint32_t)(x[1] * w[1]);
                    }
                float answer = (float)(scale[f] * (double)(int32_t)sum);
                if (bias)
                    answer += bias[f];
                block[b].c[f * ldc + i] = relu && answer <= 0 ? 0.0f : answer;
            }
}
