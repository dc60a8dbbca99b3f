/* hc_attend_block_neon: kernels/layers/layers.h. */
#define HC_FLOATS 4
#define HC_TALL 3
#define HC_COLUMNS 6
#include "kernels/layers/attend_block.h"

HC_ATTEND_BLOCK(neon)
