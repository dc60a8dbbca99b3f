/* hc_mark_inside_neon, hc_note_factors_neon and hc_keep_marked_neon: kernels/training/training.h. */
#define HC_LANES 4
#define HC_DOUBLES 2
#define HC_MARKS_NEON
#include "kernels/training/rows.h"

void hc_mark_inside_neon(int64_t n, const void *x, bool is_double, int64_t group, const float *threshold, float low,
                         float high, uint8_t *bits) {
    hc_mark_inside_body(n, x, is_double, group, threshold, low, high, bits);
}

void hc_note_factors_neon(int64_t n, const float *x, float low, float high, float *factors) {
    const float32x4_t least = vdupq_n_f32(low), most = vdupq_n_f32(high), one = vdupq_n_f32(1);
    int64_t i = 0;
    for (; i + 4 <= n; i += 4) {
        const float32x4_t value = vld1q_f32(x + i), bound = vbslq_f32(vcltzq_f32(value), least, most);
        const uint32x4_t inside = vandq_u32(vcleq_f32(least, value), vcleq_f32(value, most));
        vst1q_f32(factors + i, vdivq_f32(vbslq_f32(inside, one, bound), vbslq_f32(inside, one, value)));
    }
    hc_note_factors_body(n - i, x + i, low, high, factors + i);
}

void hc_keep_marked_neon(int64_t n, const float *g, const uint8_t *bits, float *y) {
    static const uint32_t PLACES[8] = {1, 2, 4, 8, 16, 32, 64, 128};
    const uint32x4_t low = vld1q_u32(PLACES), high = vld1q_u32(PLACES + 4);
    int64_t i = 0;
    for (; i + 8 <= n; i += 8) {
        const uint32x4_t marks = vdupq_n_u32(bits[i / 8]);
        const uint32x4_t first = vreinterpretq_u32_f32(vld1q_f32(g + i));
        const uint32x4_t second = vreinterpretq_u32_f32(vld1q_f32(g + i + 4));
        vst1q_f32(y + i, vreinterpretq_f32_u32(vandq_u32(first, vtstq_u32(marks, low))));
        vst1q_f32(y + i + 4, vreinterpretq_f32_u32(vandq_u32(second, vtstq_u32(marks, high))));
    }
    for (; i < n; i++)
        y[i] = bits[i / 8] >> (i & 7) & 1 ? g[i] : 0.0f;
}
