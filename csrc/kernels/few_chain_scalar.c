/* few_chain, the definition. */
#include "kernels/kernel.h"

#include <math.h>

void hc_few_chain_scalar(int64_t n, int64_t ld, const float *x_scales, const float *scales, const float *dots,
                         float *out) {
    for (int i = 0; i < 16; i++) {
        float acc = 0;
        for (int64_t s = 0; s < n; s++) {
            const float scale = x_scales[s] * scales[i * ld + s];
            acc = fmaf(scale, dots[i * ld + s], acc);
        }
        out[i] = acc;
    }
}
