/* hc_gemm_f64_avx2, hc_axpy_f64_avx2, hc_round_steps_avx2 and hc_round_levels_avx2: kernels/ptq/ptq.h. */
#define HC_LANES 4
#define HC_MR 6
#define HC_NR 8
#include <immintrin.h>

#define HC_FUSED(x, y, z) _mm256_fmadd_pd(_mm256_set1_pd(x), (__m256d)(y), (__m256d)(z))
#include "kernels/ptq/columns.h"

HC_COLUMNS(avx2)
