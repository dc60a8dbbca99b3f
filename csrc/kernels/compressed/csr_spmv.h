/* Stored rows times one vector, for the kernels that differ only in their flags: with the instruction, fmaf is one
 * instruction, otherwise it is the library's function. Each sum has its own variable, so that it has a register. There
 * is one load per value instead of a gather, which takes longer on Zen 4. */
#ifndef HC_CSR_VECTOR_H
#define HC_CSR_VECTOR_H

#include "kernels/kernel.h"

#include <math.h>

static inline __attribute__((always_inline)) void hc_csr_walk(int64_t rows, const int64_t *starts, const float *values,
                                                              const int32_t *indices, const float *x, float *out) {
    for (int64_t i = 0; i < rows; i++) {
        const float *w = values + starts[i];
        const int32_t *at = indices + starts[i];
        int64_t n = starts[i + 1] - starts[i];
        float sum0 = 0, sum1 = 0, sum2 = 0, sum3 = 0, sum4 = 0, sum5 = 0, sum6 = 0, sum7 = 0;
        for (; n >= 8; n -= 8, w += 8, at += 8) {
            sum0 = fmaf(w[0], x[at[0]], sum0);
            sum1 = fmaf(w[1], x[at[1]], sum1);
            sum2 = fmaf(w[2], x[at[2]], sum2);
            sum3 = fmaf(w[3], x[at[3]], sum3);
            sum4 = fmaf(w[4], x[at[4]], sum4);
            sum5 = fmaf(w[5], x[at[5]], sum5);
            sum6 = fmaf(w[6], x[at[6]], sum6);
            sum7 = fmaf(w[7], x[at[7]], sum7);
        }
        switch (n) { /* each falls into the next */
        case 7:
            sum6 = fmaf(w[6], x[at[6]], sum6); /* fall through */
        case 6:
            sum5 = fmaf(w[5], x[at[5]], sum5); /* fall through */
        case 5:
            sum4 = fmaf(w[4], x[at[4]], sum4); /* fall through */
        case 4:
            sum3 = fmaf(w[3], x[at[3]], sum3); /* fall through */
        case 3:
            sum2 = fmaf(w[2], x[at[2]], sum2); /* fall through */
        case 2:
            sum1 = fmaf(w[1], x[at[1]], sum1); /* fall through */
        case 1:
            sum0 = fmaf(w[0], x[at[0]], sum0); /* fall through */
        default:
            out[i] = ((sum0 + sum4) + (sum2 + sum6)) + ((sum1 + sum5) + (sum3 + sum7));
        }
    }
}

#endif
