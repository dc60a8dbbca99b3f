/* Definition of the dot products of rows; kernels/rows/rows.h. Sums are unsigned here, so that they wrap. */
#include "kernels/kernel.h"

void hc_rows_s8_scalar(const hc_rows_s8_args *args) {
    for (int i = 0; i < args->n_x; i++)
        for (int64_t j = 0; j < args->n_w; j++) {
            int32_t *c = args->c + i * args->ldc + j;
            const int8_t *x = args->x + i * args->ld_x, *w = args->w + j * args->ld_w;
            uint32_t sum = args->accumulate ? (uint32_t)*c : 0;
            for (int64_t k = 0; k < args->columns; k++)
                sum += (uint32_t)(x[k] * w[k]);
            *c = (int32_t)sum;
        }
}
