/* Definition of copying and checking indices; kernels/compressed/compressed.h. */
#include "kernels/kernel.h"

int64_t hc_csr_copy_scalar(int64_t n, const int32_t *indices, int64_t columns, int32_t *to, bool *inside) {
    int64_t falls = 0;
    *inside = true;
    for (int64_t t = 0; t < n; t++) {
        to[t] = indices[t];
        *inside &= to[t] >= 0 && to[t] < columns;
        falls += t > 0 && to[t] < to[t - 1];
    }
    return falls;
}
