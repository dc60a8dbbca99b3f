/* The transforms of Winograd's convolution, with 16 channels or filters in lanes: hc_winograd_input_f32_avx512,
 * hc_winograd_filter_f32_avx512 and hc_winograd_output_f32_avx512; kernels/conv/conv.h. */
#include "base/lanes/avx512.h"
#include "kernels/kernel.h"

#include "kernels/conv/transforms/winograd_tiles.h"

HC_WINOGRAD(avx512)
