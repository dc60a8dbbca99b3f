/* hc_gemm_flat_neon: 8 rows of w by 2 registers are 16 of 32 registers. */
#include "base/lanes/neon.h"

enum { STEPS = 8 };

#include "kernels/gemm/gemm_flat.h"

HC_GEMM_FLAT(neon)
