/* Definition of rows of outputs of filters of one channel with scales; kernels/conv/conv.h. */
#include "kernels/kernel.h"

#include <math.h>

void hc_depthwise_line_scaled_f32_scalar(int side, int stride, int across, int64_t rows, const float *const *x,
                                         int64_t pitch, int64_t first, const float *panel, const float *scale,
                                         int64_t ld, int64_t count, float *c, int64_t ldc) {
    for (int q = 0; q < across; q++)
        for (int64_t j = 0; j < count; j++) {
            float sum = 0.0f;
            for (int64_t r = 0; r < rows; r++)
                for (int s = 0; s < side; s++) {
                    const int64_t tap = (r * side + s) * ld + j;
                    const float product = x[r * pitch + q * stride + s][first + j] * panel[tap];
                    sum = fmaf(product, scale[tap], sum);
                }
            c[q * ldc + j] = sum;
        }
}
