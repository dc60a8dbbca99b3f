/* Joins the sums of pairs of 8-bit limbs; kernels/gemm/gemm.h. */
#include "kernels/kernel.h"

void hc_combine_limbs_scalar(int n, int64_t count, const int32_t *tiles, const int *shifts, int64_t *dots) {
    for (int64_t t = 0; t < count; t++) {
        uint64_t dot = (uint64_t)dots[t];
        for (int p = 0; p < n; p++)
            dot += (uint64_t)(int64_t)tiles[p * count + t] << shifts[p];
        dots[t] = (int64_t)dot;
    }
}
