/* hc_norm_scalar, hc_softmax_scalar, hc_gate_scalar and hc_rope_scalar: kernels/layers/layers.h. */
#define HC_FLOATS 4
#include "kernels/layers/rows.h"

#include "kernels/kernel.h"

HC_LAYER_ROWS(scalar)
