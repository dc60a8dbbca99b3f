/* hc_norm_avx2, hc_softmax_avx2, hc_gate_avx2 and hc_rope_avx2: kernels/layers/layers.h. */
#define HC_FLOATS 8
#include "kernels/layers/rows.h"

#include "kernels/kernel.h"

HC_LAYER_ROWS(avx2)
