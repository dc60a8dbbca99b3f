/* gemm_flat, the definition. */
#include "kernels/kernel.h"

#include <math.h>

void hc_gemm_flat_scalar(int64_t k, int64_t n, const float *w, int64_t ldw, int64_t m, const float *x, int64_t ldx,
                         float *out, int64_t ldo, bool accumulate) {
    for (int64_t i = 0; i < m; i++)
        for (int64_t j = 0; j < n; j++) {
            float acc = accumulate ? out[i * ldo + j] : 0;
            for (int64_t s = 0; s < k; s++)
                acc = fmaf(x[i * ldx + s], w[s * ldw + j], acc);
            out[i * ldo + j] = acc;
        }
}
