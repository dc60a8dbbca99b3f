/* hc_csr_spmm_avx512: kernels/compressed/csr_spmm.h. */
#include "base/lanes/avx512.h"

#include "kernels/compressed/csr_spmm.h"

HC_CSR_SPMM(avx512, 4)
