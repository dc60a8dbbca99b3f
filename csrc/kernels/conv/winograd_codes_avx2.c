/* Winograd's transforms of integers, with 16 codes or 8 sums in lanes: hc_winograd_input_s16_avx2,
 * hc_winograd_filter_s16_avx2 and hc_winograd_output_s32_avx2; kernels/conv/conv.h. */
#include "kernels/kernel.h"

enum { LANES = 16 };
typedef int16_t words __attribute__((vector_size(32)));
typedef uint32_t sums __attribute__((vector_size(32)));
typedef int32_t signed_sums __attribute__((vector_size(32)));

#include "kernels/conv/transforms/winograd_codes.h"

HC_WINOGRAD(avx2)
