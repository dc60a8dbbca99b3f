/* few_rows, the definition. */
#include "kernels/kernel.h"

#include <math.h>

void hc_few_rows_scalar(const hc_few_floats_args *args) {
    const int n_vectors = args->n_vectors;
    for (int r = 0; r < HC_FEW_ROWS; r++)
        for (int v = 0; v < n_vectors; v++) {
            float acc[64] = {0};
            for (int64_t k = 0; k < args->columns; k++) {
                const uint8_t byte = args->codes[r][k * args->bits / 8];
                const int code = args->bits == 8 ? byte : byte >> (k % 2 * 4) & 15;
                const int64_t place = args->bits == 8 ? k % 4 * 16 + k / 4 % 16 : k % 8 * 8 + k / 8 % 8;
                const float zero = args->zeros[r] ? args->zeros[r][0] : args->zero;
                acc[k % 64] = fmaf(args->x[(k / 64 * n_vectors + v) * 64 + place], (float)(code ^ args->flip) - zero,
                                   acc[k % 64]);
            }
            for (int half = 32; half > 0; half /= 2)
                for (int i = 0; i < half; i++)
                    acc[i] = acc[i] + acc[i + half];
            args->out[r * n_vectors + v] = acc[0];
        }
}
