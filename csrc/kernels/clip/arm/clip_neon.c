/* hc_maxima_neon, hc_top_pair_neon and hc_octav_neon: kernels/clip/clip.h. */
#include "kernels/clip/arm/across_neon.h"

#define HC_DOUBLES 2
#define HC_REGISTERS 4
#define HC_ANY(words) (((words)[0] | (words)[1]) != 0)
#include "kernels/clip/octav_across.h"

void hc_octav_neon(int64_t groups, int64_t n, const void *x, bool is_double, bool positive, double inside,
                   double *scratch, float *thresholds) {
    hc_octav_body(groups, n, x, is_double, positive, inside, scratch, thresholds);
}

void hc_maxima_neon(int64_t groups, int64_t n, const float *x, float *maxima) {
    for (int64_t g = 0; g < groups; g++, x += n) {
        uint32x4_t largest[2] = {vdupq_n_u32(0), vdupq_n_u32(0)};
        int64_t i = 0;
        for (; i + 8 <= n; i += 8)
            for (int j = 0; j < 2; j++)
                largest[j] = vmaxq_u32(largest[j], vreinterpretq_u32_f32(vabsq_f32(vld1q_f32(x + i + 4 * j))));
        for (; i < n; i += 4)
            largest[0] = vmaxq_u32(largest[0], vreinterpretq_u32_f32(hc_magnitudes(x + i, n - i)));
        const uint32_t bits = vmaxvq_u32(vmaxq_u32(largest[0], largest[1]));
        memcpy(maxima + g, &bits, sizeof bits);
    }
}

/* The `place` largest of each of 4 groups, descending, in `top`. In long groups most values are below all of them. */
static inline __attribute__((always_inline)) void top_across(const float *x, int64_t count, int64_t n, int64_t place,
                                                             bool many, float32x4_t *top) {
    for (int64_t j = 0; j < place; j++)
        top[j] = vdupq_n_f32(0);
    for (int64_t i = 0; i < n; i += 4) {
        float32x4_t lanes[4];
        hc_load_across(x, count, n, i, lanes);
        for (int k = 0; k < 4; k++) {
            if (many && !vmaxvq_u32(vcgtq_f32(lanes[k], top[place - 1])))
                continue;
            for (int64_t j = 0; j < place; j++) {
                const float32x4_t above = vmaxq_f32(top[j], lanes[k]);
                lanes[k] = vminq_f32(top[j], lanes[k]);
                top[j] = above;
            }
        }
    }
}

/* With a constant rank the largest values stay in registers. */
static inline __attribute__((always_inline)) void pair_across(const float *x, int64_t count, int64_t n, int64_t place,
                                                              bool many, float *lower, float *upper) {
    float32x4_t top[HC_TOP];
    float low[4], high[4];
    top_across(x, count, n, place, many, top);
    vst1q_f32(low, top[place - 1]);
    vst1q_f32(high, top[place > 1 ? place - 2 : 0]);
    memcpy(lower, low, (size_t)count * sizeof *lower);
    memcpy(upper, high, (size_t)count * sizeof *upper);
}

void hc_top_pair_neon(int64_t groups, int64_t n, int64_t place, const float *x, float *lower, float *upper) {
    for (int64_t g = 0; g < groups; g += 4) {
        const int64_t count = hc_min(4, groups - g);
        if (place == 1)
            pair_across(x + g * n, count, n, 1, false, lower + g, upper + g);
        else if (place == 2)
            pair_across(x + g * n, count, n, 2, false, lower + g, upper + g);
        else if (place == 3)
            pair_across(x + g * n, count, n, 3, false, lower + g, upper + g);
        else
            pair_across(x + g * n, count, n, place, true, lower + g, upper + g);
    }
}
