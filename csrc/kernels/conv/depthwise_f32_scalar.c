/* Definition of one filter per channel; kernels/conv/conv.h. */
#include "kernels/kernel.h"

#include <math.h>

void hc_depthwise_f32_scalar(int64_t taps, const float *const *tap, const int64_t *step, const float *panel, int64_t ld,
                             int64_t n, int64_t count, float *c, int64_t ldc) {
    for (int64_t i = 0; i < n; i++)
        for (int64_t j = 0; j < count; j++) {
            float sum = 0.0f;
            for (int64_t t = 0; t < taps; t++)
                sum = fmaf(tap[t][i * step[t] + j], panel[t * ld + j], sum);
            c[i * ldc + j] = sum;
        }
}

void hc_depthwise_scaled_f32_scalar(int64_t taps, const float *const *tap, const int64_t *step, const float *panel,
                                    const float *scale, int64_t ld, int64_t n, int64_t count, float *c, int64_t ldc) {
    for (int64_t i = 0; i < n; i++)
        for (int64_t j = 0; j < count; j++) {
            float sum = 0.0f;
            for (int64_t t = 0; t < taps; t++)
                sum = fmaf(tap[t][i * step[t] + j] * panel[t * ld + j], scale[t * ld + j], sum);
            c[i * ldc + j] = sum;
        }
}
