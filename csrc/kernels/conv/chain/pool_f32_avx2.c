/* The largest values of windows, 8 values in lanes: hc_pool_f32_avx2; kernels/conv/conv.h. */
#include "base/lanes/avx2.h"

#include "kernels/conv/chain/pool_f32.h"

HC_POOL_F32(avx2)
