/* Winograd's transforms of integers, with 32 codes or 16 sums in lanes: hc_winograd_input_s16_avx512,
 * hc_winograd_filter_s16_avx512 and hc_winograd_output_s32_avx512; kernels/conv/conv.h. */
#include "kernels/kernel.h"

enum { LANES = 32 };
typedef int16_t words __attribute__((vector_size(64)));
typedef int16_t half_words __attribute__((vector_size(32)));
#define HC_HALF half_words
typedef uint32_t sums __attribute__((vector_size(64)));
typedef int32_t signed_sums __attribute__((vector_size(64)));

#include "kernels/conv/transforms/winograd_codes.h"

HC_WINOGRAD(avx512)
