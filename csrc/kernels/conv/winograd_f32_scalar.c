/* Definition of the transforms of Winograd's convolution, one value after the other: hc_winograd_input_f32_scalar,
 * hc_winograd_filter_f32_scalar and hc_winograd_output_f32_scalar; kernels/conv/conv.h. */
#include "base/lanes/scalar.h"
#include "kernels/kernel.h"

#include "kernels/conv/transforms/winograd_tiles.h"

HC_WINOGRAD(scalar)
