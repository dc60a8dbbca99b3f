/* hc_gemm_nm_f32_avx2: kernels/sparse/gemm_nm_f32.h. */
#include "base/lanes/avx2.h"

enum { SUMS = 8 };

#define HC_NEAR 2
#include "kernels/sparse/gemm_nm_f32.h"

HC_GEMM_NM_F32(avx2, HC_CASE(1, 4) HC_CASE(2, 4) HC_CASE(3, 2) HC_CASE(4, 2) HC_CASE(5, 1) HC_CASE(6, 1) HC_CASE(7, 1)
                         HC_CASE(8, 1))
