/* hc_attend_block_avx512: kernels/layers/layers.h. */
#define HC_FLOATS 16
#define HC_TALL 8
#define HC_COLUMNS 16
#include "kernels/layers/attend_block.h"

HC_ATTEND_BLOCK(avx512)
