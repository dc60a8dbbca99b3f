/* Definition of nonzero codes times few vectors; kernels/sparse/nm.h. */
#include "kernels/kernel.h"

#include <math.h>

const float *hc_gemv_nm_scalar(int64_t words, const uint64_t *masks, const float *codes, const float *end,
                               const float *x, int64_t ldx, int n_vectors, float *sums) {
    (void)end;
    for (int64_t word = 0; word < words; word++)
        for (int k = 0; k < 64; k++) {
            if (!(masks[word] >> k & 1))
                continue;
            for (int v = 0; v < n_vectors; v++)
                sums[v * 64 + k] = fmaf(x[v * ldx + word * 64 + k], *codes, sums[v * 64 + k]);
            codes++;
        }
    return codes;
}
