/* A tile of a convolution: 6 windows by 2 or 4 registers of filters: hc_direct_f32_neon. */
#include "base/lanes/neon.h"

#include "kernels/conv/direct_f32.h"

HC_DIRECT_F32(neon)
