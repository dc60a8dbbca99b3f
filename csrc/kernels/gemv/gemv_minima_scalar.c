/* gemv_minima, the definition. */
#include "kernels/kernel.h"

#include <math.h>

void hc_gemv_minima_scalar(int64_t n, int64_t ld, int64_t n_lines, const float *x_scales, const float *sums,
                           const float *minima, float *out) {
    for (int64_t line = 0; line < n_lines; line++)
        for (int i = 0; i < 16; i++) {
            float acc = 0;
            for (int64_t s = 0; s < n; s++) {
                const float scale = x_scales[line * ld + s] * minima[i * ld + s];
                acc = fmaf(scale, sums[line * ld + s], acc);
            }
            out[line * 16 + i] = acc;
        }
}
