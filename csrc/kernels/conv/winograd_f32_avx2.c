/* The transforms of Winograd's convolution, with 8 channels or filters in lanes: hc_winograd_input_f32_avx2,
 * hc_winograd_filter_f32_avx2 and hc_winograd_output_f32_avx2; kernels/conv/conv.h. */
#include "base/lanes/avx2.h"
#include "kernels/kernel.h"

#include "kernels/conv/transforms/winograd_tiles.h"

HC_WINOGRAD(avx2)
