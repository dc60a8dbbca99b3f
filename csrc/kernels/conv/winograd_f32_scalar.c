/* Definition of the transforms of Winograd's convolution, one value after the other: hc_winograd_input_f32_scalar,
 * hc_winograd_filter_f32_scalar and hc_winograd_output_f32_scalar; kernels/conv/conv.h. */
#include "kernels/kernel.h"

enum { LANES = 1 };

#define input_tile_lanes input_tile_one
#define filter_tile_lanes filter_tile_one
#define output_tile_lanes output_tile_one
#include "kernels/conv/winograd_tiles.h"

HC_WINOGRAD(scalar)
