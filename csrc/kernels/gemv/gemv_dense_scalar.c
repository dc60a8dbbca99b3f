/* gemv_dense, the definition. */
#include "kernels/kernel.h"

#include <math.h>

void hc_gemv_dense_scalar(int64_t n, int n_rows, const float *const *rows, bool is_far, int n_vectors, const float *x,
                          int64_t ldx, float *out) {
    (void)is_far;
    for (int v = 0; v < n_vectors; v++)
        for (int i = 0; i < n_rows; i++) {
            float acc = 0;
            for (int64_t k = 0; k < n; k++)
                acc = fmaf(x[v * ldx + k], rows[i][k], acc);
            out[v * HC_GEMV_DENSE_ROWS + i] = acc;
        }
}
