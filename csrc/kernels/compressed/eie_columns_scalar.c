/* Definition of one processing element of EIE; kernels/compressed/compressed.h. */
#include "kernels/compressed/eie_columns.h"

void hc_eie_columns_scalar(int64_t n, const int32_t *columns, const float *x, const uint32_t *pointers,
                           const uint8_t *entries, const float *codebook, float *sums) {
    hc_eie_walk(n, columns, x, pointers, entries, codebook, sums);
}
