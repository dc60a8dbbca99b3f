/* The last steps of results in a chain, one value at a time: hc_link_f32_scalar; kernels/conv/conv.h. */
#include "base/lanes/scalar.h"

#include "kernels/conv/chain/link_f32.h"

HC_LINK_F32(scalar)
