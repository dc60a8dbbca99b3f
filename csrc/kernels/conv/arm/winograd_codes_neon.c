/* Winograd's transforms of integers, with 8 codes or 4 sums in lanes: hc_winograd_input_s16_neon,
 * hc_winograd_filter_s16_neon and hc_winograd_output_s32_neon; kernels/conv/conv.h. */
#include "kernels/kernel.h"

enum { LANES = 8 };
typedef int16_t words __attribute__((vector_size(16)));
typedef uint32_t sums __attribute__((vector_size(16)));
typedef int32_t signed_sums __attribute__((vector_size(16)));

#include "kernels/conv/transforms/winograd_codes.h"

HC_WINOGRAD(neon)
