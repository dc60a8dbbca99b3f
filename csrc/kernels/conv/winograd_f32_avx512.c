/* The transforms of Winograd's convolution, 16 channels, or filters, in lanes: hc_winograd_input_f32_avx512,
 * hc_winograd_filter_f32_avx512 and hc_winograd_output_f32_avx512; kernels/conv/conv.h. */
#include "kernels/kernel.h"

#include <immintrin.h>

enum { LANES = 16 };

#include "kernels/conv/winograd_floats.h"
#define HC_V __m512
#define HC_NAME(name) name##_lanes
#define HC_LOAD(at) _mm512_loadu_ps(at)
#define HC_LOAD_SOME(at, some)                                                                                         \
    ((some) == LANES ? _mm512_loadu_ps(at) : _mm512_maskz_loadu_ps((__mmask16)((1u << (some)) - 1), at))
#define HC_STORE(at, value) _mm512_storeu_ps(at, value)
#define HC_SET(value) _mm512_set1_ps(value)
#define HC_ADD(a, b) _mm512_add_ps(a, b)
#define HC_SUB(a, b) _mm512_sub_ps(a, b)
#define HC_MUL(a, b) _mm512_mul_ps(a, b)
#define HC_FMA(a, b, c) _mm512_fmadd_ps(a, b, c)
#define HC_RELU(a) _mm512_maskz_mov_ps(_mm512_cmp_ps_mask(a, _mm512_setzero_ps(), _CMP_NLE_UQ), a)
#include "kernels/conv/winograd.h"

#include "kernels/conv/winograd_tiles.h"

HC_WINOGRAD(avx512)
