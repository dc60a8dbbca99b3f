/* Definition of planes of images; kernels/conv/conv.h. */
#include "kernels/kernel.h"

#include <math.h>

void hc_planes_f32_scalar(int64_t taps, const int64_t *tap, int64_t channels, int64_t plane, const float *w,
                          const int64_t *w_step, int64_t filters, const hc_plane_block *block, int blocks, bool some,
                          int64_t ldc, bool far, const float *bias, bool relu) {
    (void)some, (void)far;
    for (int b = 0; b < blocks; b++)
        for (int64_t f = 0; f < filters; f++)
            for (int64_t i = 0; i < block[b].n; i++) {
                float sum = 0.0f;
                for (int64_t t = 0; t < taps; t++)
                    for (int64_t c = 0; c < channels; c++)
                        sum = fmaf(block[b].x[tap[t] + c * plane + i], w[f * w_step[0] + t * w_step[1] + c * w_step[2]],
                                   sum);
                if (bias)
                    sum += bias[f];
                block[b].c[f * ldc + i] = relu && sum <= 0 ? 0.0f : sum;
            }
}
