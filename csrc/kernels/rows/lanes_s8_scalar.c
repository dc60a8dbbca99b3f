/* Definition of dot products with rows of x in lanes; kernels/rows/rows.h. Sums are unsigned here, so that they
 * wrap. */
#include "kernels/kernel.h"

void hc_lanes_s8_scalar(const hc_lanes_s8_args *args) {
    const int width = args->lanes == HC_LANES_FEW ? 8 : 4;
    for (int64_t j = 0; j < args->n_w; j++)
        for (int i = 0; i < args->lanes; i++) {
            int32_t *c = args->c + j * args->ldc + i;
            const int8_t *w = args->w + j * args->ld_w;
            uint32_t sum = args->accumulate ? (uint32_t)*c : 0;
            for (int64_t k = 0; k < args->columns; k++)
                sum += (uint32_t)((args->x[(k / width * args->lanes + i) * width + k % width] - 128) * w[k]);
            *c = (int32_t)sum;
        }
}
