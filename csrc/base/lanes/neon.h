/* Vectors of floats of NEON; base/lanes/scalar.h defines each operation for one float. */
#ifndef HC_LANES_NEON_H
#define HC_LANES_NEON_H

#include <arm_neon.h>
#include <stdint.h>
#include <string.h>

enum { LANES = 4 };
typedef float32x4_t lanes;
typedef uint32x4_t lanes_mask;
static inline lanes lanes_load(const float *from) { return vld1q_f32(from); }
static inline void lanes_store(float *to, lanes a) { vst1q_f32(to, a); }
static inline lanes lanes_load_some(const float *from, int64_t n) {
    float lane[LANES] = {0};
    memcpy(lane, from, (size_t)n * sizeof *lane);
    return vld1q_f32(lane);
}
static inline void lanes_store_some(float *to, lanes a, int64_t n) {
    float lane[LANES];
    vst1q_f32(lane, a);
    memcpy(to, lane, (size_t)n * sizeof *lane);
}
static inline lanes lanes_of(float a) { return vdupq_n_f32(a); }
static inline lanes lanes_add(lanes a, lanes b) { return vaddq_f32(a, b); }
static inline lanes lanes_sub(lanes a, lanes b) { return vsubq_f32(a, b); }
static inline lanes lanes_mul(lanes a, lanes b) { return vmulq_f32(a, b); }
static inline lanes lanes_div(lanes a, lanes b) { return vdivq_f32(a, b); }
static inline lanes lanes_min(lanes a, lanes b) { return vbslq_f32(vcltq_f32(a, b), a, b); }
static inline lanes lanes_max(lanes a, lanes b) { return vbslq_f32(vcgtq_f32(a, b), a, b); }
static inline lanes lanes_abs(lanes a) { return vabsq_f32(a); }
static inline lanes lanes_relu(lanes a) {
    return vreinterpretq_f32_u32(vbicq_u32(vreinterpretq_u32_f32(a), vclezq_f32(a)));
}
static inline lanes_mask lanes_above(lanes a, lanes b) { return vcgtq_f32(a, b); }
static inline lanes_mask lanes_both(lanes_mask a, lanes_mask b) { return vandq_u32(a, b); }
static inline lanes lanes_select(lanes_mask mask, lanes a, lanes b) { return vbslq_f32(mask, a, b); }
static inline lanes lanes_trunc(lanes a) { return vcvtq_f32_s32(vcvtq_s32_f32(a)); }
static inline lanes lanes_nearest(lanes a) { return vrndnq_f32(a); }
static inline lanes lanes_fma(lanes a, lanes b, lanes c) { return vfmaq_f32(c, a, b); }
static inline lanes lanes_add_exact(lanes sum, lanes a, lanes b) { return vfmaq_f32(sum, a, b); }
static inline lanes lanes_scaled(double by, lanes a) {
    const float64x2_t low = vmulq_n_f64(vcvt_f64_f32(vget_low_f32(a)), by);
    return vcvt_high_f32_f64(vcvt_f32_f64(low), vmulq_n_f64(vcvt_high_f64_f32(a), by));
}
static inline lanes lanes_scaled_pair(double by, lanes a, lanes b) {
    const float64x2_t low = vfmaq_n_f64(vcvt_f64_f32(vget_low_f32(b)), vcvt_f64_f32(vget_low_f32(a)), 256);
    const float64x2_t high = vfmaq_n_f64(vcvt_high_f64_f32(b), vcvt_high_f64_f32(a), 256);
    return vcvt_high_f32_f64(vcvt_f32_f64(vmulq_n_f64(low, by)), vmulq_n_f64(high, by));
}
/* Lanes 0, 2, ... and lanes 1, 3, ... of a followed by b. */
static inline lanes lanes_even(lanes a, lanes b) { return vuzp1q_f32(a, b); }
static inline lanes lanes_odd(lanes a, lanes b) { return vuzp2q_f32(a, b); }
static inline __attribute__((always_inline)) void lanes_transpose(lanes *a) {
    const float32x4x2_t low = vtrnq_f32(a[0], a[1]), high = vtrnq_f32(a[2], a[3]);
#pragma GCC unroll 2
    for (int i = 0; i < 2; i++) { /* columns i and i + 2 of 4 rows */
        const float64x2_t first = vreinterpretq_f64_f32(low.val[i]), second = vreinterpretq_f64_f32(high.val[i]);
        a[i] = vreinterpretq_f32_f64(vzip1q_f64(first, second));
        a[i + 2] = vreinterpretq_f32_f64(vzip2q_f64(first, second));
    }
}
/* Columns `from` on of 4 rows. */
static inline __attribute__((always_inline)) void lanes_load_columns(const float *const *rows, int64_t from, lanes *w) {
#pragma GCC unroll 4
    for (int i = 0; i < LANES; i++)
        w[i] = lanes_load(rows[i] + from);
    lanes_transpose(w);
}
static inline uint16_t lanes_to_f16(float a) {
    return vget_lane_u16(vreinterpret_u16_f16(vcvt_f16_f32(vdupq_n_f32(a))), 0);
}
static inline float lanes_from_f16(uint16_t a) {
    return vgetq_lane_f32(vcvt_f32_f16(vreinterpret_f16_u16(vdup_n_u16(a))), 0);
}
static inline void lanes_store_bytes(uint8_t *to, lanes a) {
    const uint16x4_t words = vreinterpret_u16_s16(vmovn_s32(vcvtq_s32_f32(a)));
    const uint8x8_t bytes = vmovn_u16(vcombine_u16(words, words));
    const uint32_t four = vget_lane_u32(vreinterpret_u32_u8(bytes), 0);
    memcpy(to, &four, sizeof four);
}

#endif
