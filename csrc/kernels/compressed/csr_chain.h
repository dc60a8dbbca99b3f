/* Stored rows times one vector, one chain each, for the kernels that differ only in their flags: with the instruction, fmaf
 * is one instruction, otherwise it is the library's function. A chain waits for its last sum, so that BESIDE rows are
 * computed at a time, as far as the shortest of them reaches. */
#ifndef HC_CSR_CHAIN_H
#define HC_CSR_CHAIN_H

#include "kernels/kernel.h"

#include <math.h>

enum { BESIDE = 4 };

static inline __attribute__((always_inline)) void hc_csr_chains(int64_t rows, const int64_t *starts,
                                                                const float *values, const int32_t *indices,
                                                                const float *x, float *out) {
    int64_t i = 0;
    for (; i + BESIDE <= rows; i += BESIDE) {
        const float *w[BESIDE];
        const int32_t *at[BESIDE];
        float sum[BESIDE];
        int64_t least = starts[i + 1] - starts[i];
#pragma GCC unroll 4
        for (int r = 0; r < BESIDE; r++) {
            const int64_t n = starts[i + r + 1] - starts[i + r];
            w[r] = values + starts[i + r];
            at[r] = indices + starts[i + r];
            sum[r] = 0;
            least = n < least ? n : least;
        }
        for (int64_t t = 0; t < least; t++)
#pragma GCC unroll 4
            for (int r = 0; r < BESIDE; r++)
                sum[r] = fmaf(w[r][t], x[at[r][t]], sum[r]);
#pragma GCC unroll 4
        for (int r = 0; r < BESIDE; r++) {
            for (int64_t t = least; t < starts[i + r + 1] - starts[i + r]; t++)
                sum[r] = fmaf(w[r][t], x[at[r][t]], sum[r]);
            out[i + r] = sum[r];
        }
    }
    for (; i < rows; i++) {
        float sum = 0;
        for (int64_t t = starts[i]; t < starts[i + 1]; t++)
            sum = fmaf(values[t], x[indices[t]], sum);
        out[i] = sum;
    }
}

#endif
