/* hc_gemm_flat_avx512: 8 rows of w by 2 registers are 16 of 32 registers. */
#include "base/lanes/avx512.h"

enum { STEPS = 8 };

#include "kernels/gemm/gemm_flat.h"

HC_GEMM_FLAT(avx512)
