/* hc_gemm_f64_avx512, hc_axpy_f64_avx512, hc_round_steps_avx512 and hc_round_levels_avx512: kernels/ptq/ptq.h. */
#define HC_LANES 8
#define HC_MR 12
#define HC_NR 16
#include <immintrin.h>

#define HC_FUSED(x, y, z) _mm512_fmadd_pd(_mm512_set1_pd(x), (__m512d)(y), (__m512d)(z))
#include "kernels/ptq/columns.h"

HC_COLUMNS(avx512)
