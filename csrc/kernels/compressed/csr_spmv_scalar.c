/* Definition of stored weights times one vector; kernels/compressed/compressed.h. */
#include "kernels/compressed/csr_spmv.h"

void hc_csr_spmv_scalar(int64_t rows, const int64_t *starts, const float *values, const int32_t *indices,
                        const float *x, float *out) {
    hc_csr_walk(rows, starts, values, indices, x, out);
}
