/* A filter a channel, 4 channels in lanes: hc_depthwise_f32_neon and hc_depthwise_scaled_f32_neon; kernels/conv/conv.h. */
#include <arm_neon.h>

enum { LANES = 4 };

#define HC_V float32x4_t
#define HC_ZERO() vdupq_n_f32(0)
#define HC_LOAD(at) vld1q_f32(at)
#define HC_STORE(at, value) vst1q_f32(at, value)
#define HC_FMA(a, b, c) vfmaq_f32(c, a, b)
#include "kernels/conv/depthwise_f32.h"

HC_DEPTHWISE(neon)
HC_DEPTHWISE_SCALED(neon)
