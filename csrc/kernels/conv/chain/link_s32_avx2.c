/* The last steps of sums in a chain: hc_link_s32_avx2; kernels/conv/conv.h. */
#include "kernels/conv/chain/link_s32.h"

HC_LINK_S32(avx2)
