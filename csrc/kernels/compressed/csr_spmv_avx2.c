/* Stored weights times one vector, with fused multiply-add; kernels/compressed/compressed.h. */
#include "kernels/compressed/csr_spmv.h"

void hc_csr_spmv_avx2(int64_t rows, const int64_t *starts, const float *values, const int32_t *indices, const float *x,
                      float *out) {
    hc_csr_walk(rows, starts, values, indices, x, out);
}
