/* Definition of as many filters as channels in a group; kernels/conv/conv.h. */
#include "kernels/kernel.h"

#include <math.h>

void hc_grouped_f32_scalar(int run, int64_t taps, const float *const *tap, const int64_t *step, const float *panel,
                           int64_t n, int64_t count, float *c, int64_t ldc) {
    for (int64_t i = 0; i < n; i++)
        for (int64_t j = 0; j < count; j++) {
            const float *w = panel + j / 8 * taps * run * 8 + j % 8;
            float sum = 0.0f;
            for (int64_t t = 0; t < taps; t++)
                for (int v = 0; v < run; v++, w += 8)
                    sum = fmaf(tap[t][i * step[t] + j / run * run + v], *w, sum);
            c[i * ldc + j] = sum;
        }
}
