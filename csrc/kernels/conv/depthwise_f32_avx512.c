/* A filter a channel, 16 channels in lanes: hc_depthwise_f32_avx512 and hc_depthwise_scaled_f32_avx512; kernels/conv/conv.h. */
#include <immintrin.h>

enum { LANES = 16 };

#define HC_V __m512
#define HC_ZERO() _mm512_setzero_ps()
#define HC_LOAD(at) _mm512_loadu_ps(at)
#define HC_STORE(at, value) _mm512_storeu_ps(at, value)
#define HC_FMA(a, b, c) _mm512_fmadd_ps(a, b, c)
#include "kernels/conv/depthwise_f32.h"

HC_DEPTHWISE(avx512)
HC_DEPTHWISE_SCALED(avx512)
