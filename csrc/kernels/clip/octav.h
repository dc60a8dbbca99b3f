/* OCTAV of one group after the other: the definition, and the cases that vectors do not handle. */
#ifndef HC_CLIP_OCTAV_H
#define HC_CLIP_OCTAV_H

#include "kernels/kernel.h"

#include <math.h>

typedef struct {
    const void *x;
    bool is_double, positive;
    int64_t n;
} hc_octav_group;

/* Sum and number of the magnitudes beyond s. */
typedef double hc_sum_fn(const hc_octav_group *group, double s, int64_t *count);

static inline double hc_clip_magnitude(const hc_octav_group *group, int64_t i) {
    const double value = group->is_double ? ((const double *)group->x)[i] : (double)((const float *)group->x)[i];
    return group->positive ? (value > 0 ? value : 0) : fabs(value);
}

static inline double hc_sum_beyond(const hc_octav_group *group, double s, int64_t *count) {
    double lane[8] = {0};
    *count = 0;
    for (int64_t i = 0; i < group->n; i++) {
        const double magnitude = hc_clip_magnitude(group, i);
        lane[i & 7] += magnitude > s ? magnitude : 0;
        *count += magnitude > s;
    }
    return ((lane[0] + lane[1]) + (lane[2] + lane[3])) + ((lane[4] + lane[5]) + (lane[6] + lane[7]));
}

static inline __attribute__((always_inline)) float hc_octav_of(hc_sum_fn *beyond, const hc_octav_group *group,
                                                               double inside, float absmax) {
    int64_t nonzero, outside;
    double s = beyond(group, 0, &nonzero);
    if (nonzero == 0)
        return 0;
    s /= (double)nonzero;
    for (int t = 1; t <= HC_OCTAV_STEPS; t++) {
        const double sum = beyond(group, s, &outside);
        if (outside == 0) /* a group of equal magnitudes would never converge */
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
    for (int64_t g = 0; g < groups; g++) {
        const hc_octav_group group = {(const char *)x + g * n * (is_double ? 8 : 4), is_double, positive, n};
        thresholds[g] = hc_octav_of(hc_sum_beyond, &group, inside, thresholds[g]);
    }
}

#endif
