/* OCTAV of one group after the other: the definition, and what takes the cases that vectors leave out. */
#ifndef HC_CLIP_OCTAV_H
#define HC_CLIP_OCTAV_H

#include "kernels/kernel.h"

#include <math.h>

static inline double hc_clip_magnitude(const void *x, bool is_double, bool positive, int64_t i) {
    const double value = is_double ? ((const double *)x)[i] : (double)((const float *)x)[i];
    return positive ? (value > 0 ? value : 0) : fabs(value);
}

/* Sum and number of the magnitudes beyond s. */
static inline double hc_sum_beyond(const void *x, bool is_double, bool positive, int64_t first, int64_t n, double s,
                                   int64_t *count) {
    double lane[8] = {0};
    *count = 0;
    for (int64_t i = 0; i < n; i++) {
        const double magnitude = hc_clip_magnitude(x, is_double, positive, first + i);
        lane[i & 7] += magnitude > s ? magnitude : 0;
        *count += magnitude > s;
    }
    return ((lane[0] + lane[1]) + (lane[2] + lane[3])) + ((lane[4] + lane[5]) + (lane[6] + lane[7]));
}

static inline float hc_octav_of(const void *x, bool is_double, bool positive, int64_t first, int64_t n, double inside,
                                float absmax) {
    int64_t nonzero, outside;
    double s = hc_sum_beyond(x, is_double, positive, first, n, 0, &nonzero);
    if (nonzero == 0)
        return 0;
    s /= (double)nonzero;
    for (int t = 1; t <= HC_OCTAV_STEPS; t++) {
        const double sum = hc_sum_beyond(x, is_double, positive, first, n, s, &outside);
        if (outside == 0) /* a group of equal magnitudes would never come to rest */
            return absmax;
        const double next = sum / (inside * (double)(nonzero - outside) + (double)outside);
        if (next == s)
            break;
        s = next;
    }
    return (float)s;
}

static inline void hc_octav_each(int64_t groups, int64_t n, const void *x, bool is_double, bool positive, double inside,
                                 float *thresholds) {
    for (int64_t g = 0; g < groups; g++)
        thresholds[g] = hc_octav_of(x, is_double, positive, g * n, n, inside, thresholds[g]);
}

#endif
