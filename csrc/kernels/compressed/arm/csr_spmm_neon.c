/* hc_csr_spmm_neon: kernels/compressed/csr_spmm.h. */
#include "kernels/floats/neon.h"

#include "kernels/compressed/csr_spmm.h"

HC_CSR_SPMM(neon, 8)
