/* The largest values of windows, 4 values in lanes: hc_pool_f32_neon; kernels/conv/conv.h. */
#include "base/lanes/neon.h"

#include "kernels/conv/chain/pool_f32.h"

HC_POOL_F32(neon)
