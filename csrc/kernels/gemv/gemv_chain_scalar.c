/* gemv_chain, the definition. */
#include "kernels/kernel.h"

#include <math.h>

void hc_gemv_chain_scalar(int64_t n, int64_t ld, const float *x_scales, const float *scales, const void *dots,
                          const int32_t *corrections, float *out) {
    for (int i = 0; i < 16; i++) {
        float acc = 0;
        for (int64_t s = 0; s < n; s++) {
            const float scale = x_scales[s] * scales[i * ld + s];
            const float dot = corrections
                                  ? (float)(int32_t)(((const uint32_t *)dots)[i * ld + s] - (uint32_t)corrections[s])
                                  : ((const float *)dots)[i * ld + s];
            acc = fmaf(scale, dot, acc);
        }
        out[i] = acc;
    }
}
