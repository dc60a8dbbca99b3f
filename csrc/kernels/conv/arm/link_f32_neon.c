/* The last steps of results in a chain, 4 values in lanes: hc_link_f32_neon; kernels/conv/conv.h. */
#include "base/lanes/neon.h"

#include "kernels/conv/chain/link_f32.h"

HC_LINK_F32(neon)
