/* Rounding for training: stochastic rounding, and the values whose gradient passes. Single operations in float64
 * without fused multiply-add, so that one source is correct for every instruction set.
 *
 *   h = mix(seed + (index + 1) * 0x9e3779b97f4a7c15), u = (h >> 11) * 2^-53     mix of SplitMix64 (Steele, OOPSLA 2014)
 */
#ifndef HC_KERNELS_TRAINING_H
#define HC_KERNELS_TRAINING_H

#include "base/base.h"

enum { HC_CHANCE_LEVELS = 256 };

/* The levels of a format before its scale. n > 0: table[0 .. n - 1] ascending, n >= 2, padded with infinity to
 * HC_CHANCE_LEVELS. Otherwise levels in the binade of |t| are 2^(max(exponent, e) - m) apart: fraction = 2^m, least =
 * 2^e; integers have m = e. */
typedef struct {
    int n;
    const double *table;
    double fraction, least;
} hc_chance_levels;

/* n values of a row; the first is `skip` values after the start of its group. */
typedef struct {
    int64_t n, skip, group;
    const double *scale;        /* of each group, not negative */
    const double *low, *high;   /* smallest and largest level of each group */
    uint64_t seed, index, step; /* the index of value i is index + i * step */
} hc_chance_run;

/* t = clip(x / scale, low, high) is between two levels. The upper one is chosen if u < (t - below) / (above - below).
 * The result is the level times the scale, 0 if the scale is 0, saturated to float32. NaN stays NaN. x: float32 or
 * float64. */
typedef void hc_round_by_chance_fn(const hc_chance_levels *levels, const hc_chance_run *run, const void *x,
                                   bool is_double, float *y);

/* Bit i % 8 of bits[i / 8]: low * T <= x[i] <= high * T, T the threshold of the group (NULL: 1); unused bits 0.
 * x: float32, or float64 rounded to it, n of them,
 * the first at the start of a group. */
typedef void hc_mark_inside_fn(int64_t n, const void *x, bool is_double, int64_t group, const float *threshold,
                               float low, float high, uint8_t *bits);

/* 1 if low <= x[i] <= high; beyond, the bound divided by x[i]. */
typedef void hc_note_factors_fn(int64_t n, const float *x, float low, float high, float *factors);

/* y[i] = g[i] if bit i is set, otherwise +0 */
typedef void hc_keep_marked_fn(int64_t n, const float *g, const uint8_t *bits, float *y);

#endif
