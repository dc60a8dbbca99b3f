/* Groups across lanes, as in kernels/clip/across.h: four at a time, and eight as float64. */
#ifndef HC_CLIP_ACROSS_NEON_H
#define HC_CLIP_ACROSS_NEON_H

#include "kernels/gemv/arm/gemv_arm.h"

enum { HC_ACROSS = 8 };

/* Magnitudes of up to 4 of n values, then zeros. */
static inline float32x4_t hc_magnitudes(const float *x, int64_t n) {
    float lane[4] = {0};
    if (n >= 4)
        return vabsq_f32(vld1q_f32(x));
    memcpy(lane, x, (size_t)n * sizeof *lane);
    return vabsq_f32(vld1q_f32(lane));
}

/* Magnitudes of 4 values of each of `count` groups as lanes of 4 registers; values from the n-th on are 0. */
static inline __attribute__((always_inline)) void hc_load_across(const float *x, int64_t count, int64_t n,
                                                                 int64_t first, float32x4_t lanes[4]) {
    for (int64_t g = 0; g < 4; g++)
        lanes[g] = g < count && first < n ? hc_magnitudes(x + g * n + first, n - first) : vdupq_n_f32(0);
    lanes_transpose(lanes);
}

/* The same for 8 values of 8 groups, as float64 with `stride` doubles from value to value. */
static inline void hc_doubles_across(const float *x, int64_t count, int64_t n, int64_t first, double *to,
                                     int64_t stride) {
    for (int64_t g = 0; g < HC_ACROSS; g += 4)
        for (int64_t i = 0; i < 8; i += 4) {
            float32x4_t lanes[4];
            hc_load_across(x + g * n, count - g, n, first + i, lanes);
            for (int j = 0; j < 4; j++) {
                vst1q_f64(to + (i + j) * stride + g, vcvt_f64_f32(vget_low_f32(lanes[j])));
                vst1q_f64(to + (i + j) * stride + g + 2, vcvt_high_f64_f32(lanes[j]));
            }
        }
}

#endif
