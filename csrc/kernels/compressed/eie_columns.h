/* The walk of one processing element, for the kernels that differ only in their flags: with the instruction, fmaf is
 * one instruction, otherwise it is the library's function. */
#ifndef HC_EIE_COLUMNS_H
#define HC_EIE_COLUMNS_H

#include "kernels/kernel.h"

#include <math.h>

static inline __attribute__((always_inline)) void hc_eie_column(const uint8_t *entry, const uint8_t *end, float x,
                                                                const float *codebook, const bool with_padding,
                                                                float *sums) {
    for (int64_t row = -1; entry < end; entry++) {
        const int code = *entry & 15;
        row += (*entry >> 4) + 1;
        if (with_padding || code)
            sums[row] = fmaf(codebook[code], x, sums[row]);
    }
}

static inline __attribute__((always_inline)) void hc_eie_walk(int64_t n, const int32_t *columns, const float *x,
                                                              const uint32_t *pointers, const uint8_t *entries,
                                                              const float *codebook, float *sums) {
    for (int64_t i = 0; i < n; i++) {
        const uint8_t *entry = entries + pointers[columns[i]], *end = entries + pointers[columns[i] + 1];
        if (x[i] - x[i] == 0) /* padding is unpredictable, so no branch depends on it */
            hc_eie_column(entry, end, x[i], codebook, true, sums);
        else
            hc_eie_column(entry, end, x[i], codebook, false, sums);
    }
}

#endif
