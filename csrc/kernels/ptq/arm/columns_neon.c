/* hc_gemm_f64_neon, hc_axpy_f64_neon, hc_round_steps_neon and hc_round_levels_neon: kernels/ptq/ptq.h. */
#define HC_LANES 2
#define HC_MR 6
#define HC_NR 8
#include <arm_neon.h>

#define HC_FUSED(x, y, z) vfmaq_n_f64((float64x2_t)(z), (float64x2_t)(y), x)
#include "kernels/ptq/columns.h"

HC_COLUMNS(neon)
