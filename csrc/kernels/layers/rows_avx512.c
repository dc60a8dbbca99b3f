/* hc_norm_avx512, hc_softmax_avx512, hc_gate_avx512 and hc_rope_avx512: kernels/layers/layers.h. */
#define HC_FLOATS 16
#include "kernels/layers/rows.h"

#include "kernels/kernel.h"

HC_LAYER_ROWS(avx512)
