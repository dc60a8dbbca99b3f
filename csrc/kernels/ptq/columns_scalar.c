/* hc_gemm_f64_scalar, hc_axpy_f64_scalar, hc_round_steps_scalar and hc_round_levels_scalar: kernels/ptq/ptq.h. */
#define HC_LANES 2
#define HC_FUSED(x, y, z)                                                                                              \
    (hc_lanes) { fma(x, (y)[0], (z)[0]), fma(x, (y)[1], (z)[1]) }
#define HC_MR 4
#define HC_NR 4
#include "kernels/ptq/columns.h"

HC_COLUMNS(scalar)
