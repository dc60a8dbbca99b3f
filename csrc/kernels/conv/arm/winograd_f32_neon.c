/* The transforms of Winograd's convolution, with 4 channels or filters in lanes: hc_winograd_input_f32_neon,
 * hc_winograd_filter_f32_neon and hc_winograd_output_f32_neon; kernels/conv/conv.h. */
#include "base/lanes/neon.h"
#include "kernels/kernel.h"

#include "kernels/conv/transforms/winograd_tiles.h"

HC_WINOGRAD(neon)
