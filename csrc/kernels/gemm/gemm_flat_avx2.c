/* hc_gemm_flat_avx2: 4 rows of w by 2 registers are 8 of 16 registers. */
#include "base/lanes/avx2.h"

enum { STEPS = 4 };

#include "kernels/gemm/gemm_flat.h"

HC_GEMM_FLAT(avx2)
