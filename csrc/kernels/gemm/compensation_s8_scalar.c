/* Sums of the rows of an int8 panel; kernels/gemm/gemm.h. */
#include "kernels/kernel.h"

void hc_compensation_s8_scalar(int64_t n_segments, const int32_t *steps, int units, const int8_t *panel, int lanes,
                               int32_t factor, int32_t *sums) {
    for (int64_t s = 0; s < n_segments; s++, sums += lanes) {
        const int64_t n = (int64_t)steps[s] * units;
        for (int j = 0; j < lanes; j++)
            sums[j] = 0;
        for (int64_t step = 0; step < n; step++, panel += lanes * 4)
            for (int j = 0; j < lanes; j++)
                sums[j] += factor * (panel[j * 4] + panel[j * 4 + 1] + panel[j * 4 + 2] + panel[j * 4 + 3]);
    }
}
