/* What is kept, side by side, as it is defined; kernels/kernel.h. */
#include "kernels/kernel.h"

int64_t hc_compress_x32_scalar(int64_t columns, const uint64_t *masks, const float *x, float *out) {
    int64_t count = 0;
    for (int64_t k = 0; k < columns; k++)
        if (masks[k / 64] >> (k % 64) & 1)
            out[count++] = x[k];
    return count;
}
