/* hc_gemm_nm_f32_neon: kernels/sparse/gemm_nm_f32.h. */
#include "base/lanes/neon.h"

enum { SUMS = 16 };

#define HC_NEAR 2
#include "kernels/sparse/gemm_nm_f32.h"

HC_GEMM_NM_F32(neon, HC_CASE(2, 4) HC_CASE(4, 4) HC_CASE(6, 2) HC_CASE(8, 2) HC_CASE(10, 1) HC_CASE(12, 1)
                         HC_CASE(14, 1) HC_CASE(16, 1))
