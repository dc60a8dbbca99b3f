/* hc_attend_block_avx2: kernels/layers/layers.h. */
#define HC_FLOATS 8
#define HC_TALL 3
#define HC_COLUMNS 6
#include "kernels/layers/attend_block.h"

HC_ATTEND_BLOCK(avx2)
