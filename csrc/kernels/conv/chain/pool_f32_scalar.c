/* The largest values of windows, one value at a time: hc_pool_f32_scalar; kernels/conv/conv.h. */
#include "base/lanes/scalar.h"

#include "kernels/conv/chain/pool_f32.h"

HC_POOL_F32(scalar)
