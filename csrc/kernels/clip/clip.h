/* What takes the place of a group's largest magnitude: groups of n >= 1 values, one behind the other. */
#ifndef HC_KERNELS_CLIP_H
#define HC_KERNELS_CLIP_H

#include "base/base.h"

enum { HC_TOP = 32, HC_OCTAV_STEPS = 20 };

/* The largest magnitude of each group, magnitudes compared as bits: a NaN is above infinity. */
typedef void hc_maxima_fn(int64_t groups, int64_t n, const float *x, float *maxima);

/* Of each group the place-th largest magnitude, and the one above it (itself where place is 1).
 * 1 <= place <= min(n, HC_TOP); no NaN. */
typedef void hc_top_pair_fn(int64_t groups, int64_t n, int64_t place, const float *x, float *lower, float *upper);

/* OCTAV (Sakr et al., ICML 2022), magnitudes |x|, or max(x, 0) where `positive`; x: float32 or float64.
 *
 *   s_0 = sum |x| / #{|x| > 0}
 *   s_t = sum |x| 1{|x| > s} / (inside #{0 < |x| <= s} + #{|x| > s}),  s = s_(t-1),  t = 1 .. HC_OCTAV_STEPS
 *
 * until s comes to rest; 0 of a group of zeros. Where nothing lies beyond s, the threshold stays what it was: absmax.
 * Sums in 8 lanes (lane = index mod 8), each ascending, folded ((0+1)+(2+3))+((4+5)+(6+7)). scratch: HC_OCTAV_SCRATCH
 * doubles from a cache line on, of which x may be a part where it is float64. */
enum { HC_OCTAV_SCRATCH = 4096 };
typedef void hc_octav_fn(int64_t groups, int64_t n, const void *x, bool is_double, bool positive, double inside,
                         double *scratch, float *thresholds);

#endif
