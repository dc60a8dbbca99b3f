/* The last steps of results in a chain, 16 values in lanes: hc_link_f32_avx512; kernels/conv/conv.h. */
#include "base/lanes/avx512.h"

#include "kernels/conv/chain/link_f32.h"

HC_LINK_F32(avx512)
