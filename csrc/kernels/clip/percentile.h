/* The percentile of n sorted magnitudes: a point between two neighbours. Included by the CPU and by the CUDA kernels. */
#ifndef HC_CLIP_PERCENTILE_H
#define HC_CLIP_PERCENTILE_H

#include "base/base.h"

/* A fraction t of the way from index i, which is returned, to the next. */
static inline int64_t hc_percentile_place(int64_t n, double p, double *t) {
    const double h = (double)(n - 1) * p / 100;
    const int64_t i = (int64_t)h < n - 1 ? (int64_t)h : n - 1;
    *t = h - (double)i;
    return i;
}

static inline float hc_percentile_between(double a, double b, double t) {
    return (float)(t < 0.5 ? a + (b - a) * t : b - (b - a) * (1 - t));
}

#endif
