/* The walk of one processing element as it is defined, for the kernels that differ only in their flags: with the
 * instruction, fmaf is one instruction, otherwise it is the library's function. */
#ifndef HC_EIE_COLUMNS_H
#define HC_EIE_COLUMNS_H

#include "kernels/kernel.h"

#include <math.h>

static inline __attribute__((always_inline)) void
hc_eie_column(const uint8_t *entry, const uint8_t *end, const float *x, int lanes, const float *codebook, float *sums) {
    for (int64_t row = -1; entry < end; entry++) {
        const int code = *entry & 15;
        row += (*entry >> 4) + 1;
        for (int v = 0; v < lanes; v++)
            if (x[v] != 0 && (code || x[v] - x[v] == 0))
                sums[row * lanes + v] = fmaf(codebook[code], x[v], sums[row * lanes + v]);
    }
}

static inline __attribute__((always_inline)) void hc_eie_walk(int64_t n, const int32_t *columns, const float *x,
                                                              int lanes, const uint32_t *pointers,
                                                              const uint8_t *entries, const float *codebook,
                                                              float *sums) {
    for (int64_t i = 0; i < n; i++)
        hc_eie_column(entries + pointers[columns[i]], entries + pointers[columns[i] + 1], x + i * lanes, lanes,
                      codebook, sums);
}

#endif
