/* Definition of 3 x 3 filters of one channel; kernels/conv/conv.h. */
#include "kernels/kernel.h"

#include <math.h>

void hc_depthwise3_f32_scalar(int stride, int down, int across, const float *const *x, const float *panel, int64_t ld,
                              int64_t count, float *c, int64_t c_row, int64_t ldc, const float *bias, bool relu) {
    const int columns = (across - 1) * stride + 3;
    for (int i = 0; i < down; i++)
        for (int q = 0; q < across; q++)
            for (int64_t j = 0; j < count; j++) {
                float sum = 0.0f;
                for (int t = 0; t < 9; t++)
                    sum = fmaf(x[(i * stride + t / 3) * columns + q * stride + t % 3][j], panel[t * ld + j], sum);
                if (bias || relu)
                    sum += bias ? bias[j] : -0.0f;
                c[i * c_row + q * ldc + j] = relu && sum <= 0 ? 0.0f : sum;
            }
}
