/* hc_csr_spmm_avx2: kernels/compressed/csr_spmm.h. */
#include "base/lanes/avx2.h"

#include "kernels/compressed/csr_spmm.h"

HC_CSR_SPMM(avx2, 4)
