/* The transforms of Winograd's convolution, with 16 channels or filters in lanes: hc_winograd_input_f32_avx512,
 * hc_winograd_filter_f32_avx512 and hc_winograd_output_f32_avx512; kernels/conv/conv.h. */
#include "kernels/floats/avx512.h"
#include "kernels/kernel.h"

#include "kernels/conv/winograd_floats.h"
#define HC_NAME(name) name##_lanes
#define HC_LOAD_SOME(at, some)                                                                                         \
    ((some) == LANES ? _mm512_loadu_ps(at) : _mm512_maskz_loadu_ps((__mmask16)((1u << (some)) - 1), at))
#include "kernels/conv/winograd.h"

#include "kernels/conv/winograd_tiles.h"

HC_WINOGRAD(avx512)
