/* The largest values of windows, 16 values in lanes: hc_pool_f32_avx512; kernels/conv/conv.h. */
#include "base/lanes/avx512.h"

#include "kernels/conv/chain/pool_f32.h"

HC_POOL_F32(avx512)
