/* Stochastic rounding of a value or a vector of them, written once for the CPU's kernels and a device's. The including
 * file defines hc_doubles and hc_words, float64 values and their bits, hc_singles, hc_either and hc_to_singles.
 */
#ifndef HC_KERNELS_CHANCE_H
#define HC_KERNELS_CHANCE_H

#include "kernels/training/training.h"

#include <float.h>
#include <math.h>
#include <string.h>

static inline double hc_bits_double(uint64_t bits) {
    double value;
    memcpy(&value, &bits, sizeof value);
    return value;
}

/* An integer below 2^52, exactly, in every instruction set. */
static inline double hc_whole(uint64_t value) { return hc_bits_double(value | 0x4330000000000000u) - 0x1p52; }

enum { HC_CHANCE_VALUES = 256 };

static inline void hc_chances(int64_t n, uint64_t seed, uint64_t index, uint64_t step, double *restrict chance) {
    for (int64_t i = 0; i < n; i++) {
        uint64_t h = seed + (index + (uint64_t)i * step + 1) * 0x9e3779b97f4a7c15u;
        h = (h ^ h >> 30) * 0xbf58476d1ce4e5b9u;
        h = (h ^ h >> 27) * 0x94d049bb133111ebu;
        h ^= h >> 31;
        chance[i] = hc_whole(h >> 32) * 0x1p-32 + hc_whole(h >> 11 & 0x1fffff) * 0x1p-53;
    }
}

static inline double hc_times_scale(double level, double scale) {
    double v = level * scale;
    v = v > (double)FLT_MAX ? (double)FLT_MAX : v;
    v = v < -(double)FLT_MAX ? -(double)FLT_MAX : v;
    return scale == 0 ? 0.0 : v;
}

static inline double hc_clipped(double x, double scale, double low, double high) {
    double t = x / scale;
    t = t > low ? t : low; /* 0 / 0 too */
    return t < high ? t : high;
}

/* hc_clipped, a step between levels, and hc_times_scale, of HC_DOUBLES values. */
static inline hc_singles hc_chance_step(hc_doubles x, hc_doubles chance, hc_doubles scale, hc_doubles low,
                                        hc_doubles high, hc_doubles fraction, hc_doubles back, hc_doubles least) {
    const hc_doubles zero = {0}, one = zero + 1.0, largest = zero + (double)FLT_MAX;
    hc_doubles t = x / scale;
    t = hc_either(t > low, t, low);
    t = hc_either(t < high, t, high);
    hc_doubles binade = (hc_doubles)((hc_words)t & (hc_words)(zero + (double)INFINITY));
    binade = hc_either(binade > least, binade, least);
    const hc_doubles units = t * ((hc_doubles)(0x7fe0000000000000 - (hc_words)binade) * fraction);
    hc_doubles below = (units + 0x1.8p52) - 0x1.8p52;
    below -= hc_either(below > units, one, zero);
    below += hc_either(chance < units - below, one, zero);
    hc_doubles v = below * (binade * back) * scale;
    v = hc_either(v > largest, largest, v);
    v = hc_either(v < -largest, -largest, v);
    v = hc_either(scale == zero, zero, v);
    return hc_to_singles(hc_either(x == x, v, x));
}

static inline void hc_chance_table(int64_t n, const double *restrict x, const double *restrict chance, double scale,
                                   const hc_chance_levels *levels, float *restrict y) {
    const double *table = levels->table;
    int64_t first = 1;
    while (2 * first < levels->n)
        first *= 2;
    for (int64_t i = 0; i < n; i++) {
        const double t = hc_clipped(x[i], scale, table[0], table[levels->n - 1]);
        int64_t place = 0;
        for (int64_t step = first; step > 0; step /= 2)
            place += t >= table[place + step] ? step : 0;
        place -= place == levels->n - 1;
        const double below = table[place], above = table[place + 1];
        const double v = hc_times_scale(chance[i] < (t - below) / (above - below) ? above : below, scale);
        y[i] = (float)(x[i] == x[i] ? v : x[i]);
    }
}

#endif
