/* A filter a channel, 8 channels in lanes: hc_depthwise_f32_avx2 and hc_depthwise_scaled_f32_avx2; kernels/conv/conv.h. */
#include <immintrin.h>

enum { LANES = 8 };

#define HC_V __m256
#define HC_ZERO() _mm256_setzero_ps()
#define HC_LOAD(at) _mm256_loadu_ps(at)
#define HC_STORE(at, value) _mm256_storeu_ps(at, value)
#define HC_FMA(a, b, c) _mm256_fmadd_ps(a, b, c)
#include "kernels/conv/depthwise_f32.h"

HC_DEPTHWISE(avx2)
HC_DEPTHWISE_SCALED(avx2)
