/* gemv_nm_pairs, the definition. */
#include "kernels/kernel.h"

#include <math.h>

void hc_gemv_nm_pairs_scalar(int64_t group, int64_t groups, const float *codes, const float *x, const float *scales,
                             float *sums) {
    for (int64_t g = 0; g < groups; g++) {
        float p = 0;
        for (int64_t t = g * group; t < (g + 1) * group; t++)
            p = fmaf(x[t], codes[t], p);
        sums[g % 16] = fmaf(scales[g], p, sums[g % 16]);
    }
}
