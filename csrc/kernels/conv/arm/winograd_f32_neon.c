/* The transforms of Winograd's convolution, 4 channels, or filters, in lanes: hc_winograd_input_f32_neon,
 * hc_winograd_filter_f32_neon and hc_winograd_output_f32_neon; kernels/conv/conv.h. */
#include "kernels/kernel.h"

#include <arm_neon.h>
#include <string.h>

enum { LANES = 4 };

__attribute__((always_inline)) static inline float32x4_t load_some(const float *at, int some) {
    float lane[LANES] = {0};
    memcpy(lane, at, (size_t)some * sizeof *lane);
    return vld1q_f32(lane);
}

#include "kernels/conv/winograd_floats.h"
#define HC_V float32x4_t
#define HC_NAME(name) name##_lanes
#define HC_LOAD(at) vld1q_f32(at)
#define HC_LOAD_SOME(at, some) ((some) == LANES ? vld1q_f32(at) : load_some(at, some))
#define HC_STORE(at, value) vst1q_f32(at, value)
#define HC_SET(value) vdupq_n_f32(value)
#define HC_ADD(a, b) vaddq_f32(a, b)
#define HC_SUB(a, b) vsubq_f32(a, b)
#define HC_MUL(a, b) vmulq_f32(a, b)
#define HC_FMA(a, b, c) vfmaq_f32(c, a, b)
#define HC_RELU(a) vreinterpretq_f32_u32(vbicq_u32(vreinterpretq_u32_f32(a), vclezq_f32(a)))
#include "kernels/conv/winograd.h"

#include "kernels/conv/winograd_tiles.h"

HC_WINOGRAD(neon)
