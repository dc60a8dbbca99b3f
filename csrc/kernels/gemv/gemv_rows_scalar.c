/* gemv_rows, the definition. */
#include "kernels/gemv/gemv_tail.h"

void hc_gemv_rows_scalar(const hc_gemv_floats_args *args) {
    const int n_vectors = args->n_vectors, bits = args->bits;
    for (int r = 0; r < HC_GEMV_ROWS; r++)
        for (int v = 0; v < n_vectors; v++) {
            const float zero = args->zeros[r] ? args->zeros[r][0] : args->zero;
            float acc[64] = {0};
            for (int64_t k = 0; k < args->columns; k++) {
                const int64_t place = bits >= 16 ? k % 64 : bits == 8 ? k % 4 * 16 + k / 4 % 16 : k % 8 * 8 + k / 8 % 8;
                acc[k % 64] =
                    fmaf(args->x[(k / 64 * n_vectors + v) * 64 + place], hc_gemv_code(args, r, k, zero), acc[k % 64]);
            }
            for (int half = 32; half > 0; half /= 2)
                for (int i = 0; i < half; i++)
                    acc[i] = acc[i] + acc[i + half];
            args->out[r * n_vectors + v] = acc[0];
        }
}
