/* Replacements of a group's largest magnitude: contiguous groups of n >= 1 values. */
#ifndef HC_KERNELS_CLIP_H
#define HC_KERNELS_CLIP_H

#include "base/base.h"

enum { HC_TOP = 32, HC_OCTAV_STEPS = 20 };

/* The largest magnitude of each group, compared as bits: a NaN is above infinity. */
typedef void hc_maxima_fn(int64_t groups, int64_t n, const float *x, float *maxima);

/* For each group the place-th largest magnitude, and the next larger one (the same if place is 1). 1 <= place <= min(n,
 * HC_TOP); no NaN. */
typedef void hc_top_pair_fn(int64_t groups, int64_t n, int64_t place, const float *x, float *lower, float *upper);

/* OCTAV (Sakr et al., ICML 2022), magnitudes |x|, or max(x, 0) with `positive`; x: float32 or float64.
 *
 *   s_0 = sum |x| / #{|x| > 0}
 *   s_t = sum |x| 1{|x| > s} / (inside #{0 < |x| <= s} + #{|x| > s}),  s = s_(t-1),  t = 1 .. HC_OCTAV_STEPS
 *
 * until s does not change; 0 for a group of zeros. If no value is beyond s, the threshold is absmax. Sums in 8 lanes
 * (lane = index mod 8), each ascending, folded ((0+1)+(2+3))+((4+5)+(6+7)). scratch: HC_OCTAV_SCRATCH doubles, aligned
 * to a cache line; a float64 x may be a part of it. */
enum { HC_OCTAV_SCRATCH = 4096 };
typedef void hc_octav_fn(int64_t groups, int64_t n, const void *x, bool is_double, bool positive, double inside,
                         double *scratch, float *thresholds);

#endif
