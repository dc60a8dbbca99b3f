/* 3 x 3 filters of one channel, 4 channels in lanes, 4 x 4 outputs in registers: hc_depthwise3_f32_neon;
 * kernels/conv/conv.h. */
#include <arm_neon.h>
#include <stdint.h>
#include <string.h>

enum { LANES = 4, MR = 4, NR = 4 };

static inline float32x4_t load(const float *at, int64_t lanes) {
    float lane[LANES] = {0};
    if (lanes == LANES)
        return vld1q_f32(at);
    memcpy(lane, at, (size_t)lanes * sizeof *lane);
    return vld1q_f32(lane);
}

static inline void store(float *at, float32x4_t value, int64_t lanes) {
    float lane[LANES];
    vst1q_f32(lane, value);
    memcpy(at, lane, (size_t)lanes * sizeof *lane);
}

#define HC_V float32x4_t
#define HC_ZERO() vdupq_n_f32(0)
#define HC_LOAD(at, lanes) load(at, lanes)
#define HC_STORE(at, value, lanes) store(at, value, lanes)
#define HC_FMA(a, b, c) vfmaq_f32(c, a, b)
#include "kernels/conv/depthwise3_f32.h"

HC_DEPTHWISE3(neon, HC_CASES(1, 1) HC_CASES(1, 2) HC_CASES(1, 4) HC_CASES(2, 1) HC_CASES(2, 2) HC_CASES(2, 4))
