/* Definition of Winograd's transforms of integers, one after the other: hc_winograd_input_s16_scalar,
 * hc_winograd_filter_s16_scalar and hc_winograd_output_s32_scalar; kernels/conv/conv.h. */
#include "kernels/kernel.h"

enum { LANES = 1 };
typedef int16_t words;
typedef uint32_t sums;
typedef int32_t signed_sums;

#include "kernels/conv/transforms/winograd_codes.h"

HC_WINOGRAD(scalar)
