/* One processing element of EIE: the definition; kernels/compressed/compressed.h. */
#include "kernels/compressed/eie_columns.h"

void hc_eie_columns_scalar(int64_t n, const int32_t *columns, const float *x, int lanes, const uint32_t *pointers,
                           const uint8_t *entries, int64_t readable, const float *codebook, float *sums) {
    (void)readable;
    hc_eie_walk(n, columns, x, lanes, pointers, entries, codebook, sums);
}
