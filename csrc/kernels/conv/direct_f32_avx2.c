/* A tile of a convolution: 6 windows by 1 or 2 registers of filters: hc_direct_f32_avx2. */
#include "base/lanes/avx2.h"

#include "kernels/conv/direct_f32.h"

HC_DIRECT_F32(avx2)
