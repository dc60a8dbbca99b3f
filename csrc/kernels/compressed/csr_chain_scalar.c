/* Definition of stored rows times one vector in one chain each; kernels/compressed/compressed.h. */
#include "kernels/compressed/csr_chain.h"

void hc_csr_chain_scalar(int64_t rows, const int64_t *starts, const float *values, const int32_t *indices,
                         const float *x, float *out) {
    hc_csr_chains(rows, starts, values, indices, x, out);
}
