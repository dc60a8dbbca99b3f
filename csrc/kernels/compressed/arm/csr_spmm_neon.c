/* hc_csr_spmm_neon: kernels/compressed/csr_spmm.h. */
#include "base/lanes/neon.h"

#include "kernels/compressed/csr_spmm.h"

HC_CSR_SPMM(neon, 8)
