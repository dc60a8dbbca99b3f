/* Functions that formats with a table of levels share: the nearest level, and values = scale * level. A value gets the
 * level whose midpoints (float64) enclose it, and a midpoint gets the lower level. Levels that repeat the preceding
 * level are never used. Zero has no sign.
 */
#ifndef HC_LEVELS_H
#define HC_LEVELS_H

#include "formats/bits.h"

enum { HC_MAX_LEVELS = 256 };

/* The n - 1 midpoints of n ascending levels. */
static inline void hc_midpoints(const float *levels, int n, double *midpoints) {
    for (int i = 0; i + 1 < n; i++)
        midpoints[i] = levels[i] == levels[i + 1] ? INFINITY : ((double)levels[i] + (double)levels[i + 1]) / 2;
}

/* n: a power of two. */
static inline uint32_t hc_nearest_level(const double *midpoints, int n, double value) {
    uint32_t found = 0;
    for (int half = n / 2; half > 0; half /= 2)
        found +=
            (uint32_t)half & -(uint32_t)(value > midpoints[found + (uint32_t)half - 1]); /* no branch to mispredict */
    return found;
}

/* float32(scale * level), rounded once. */
static inline float hc_scaled_level(float level, double scale) { return hc_saturated((double)level * scale) + 0.0f; }
static inline double hc_scaled_level_f64(float level, double scale) { return (double)level * scale + 0.0; }

/* float32 of the largest magnitude of columns [first, first + n); if a value is invalid, NaN, and *legal is cleared. */
static inline float hc_group_absmax(const hc_float_rows *x, int64_t i, int64_t first, int64_t n, bool *legal) {
    if (x->dtype == HC_F32) { /* compared as integers, which compilers vectorize */
        const float *from = (const float *)x->data + i * x->row_stride + first;
        int32_t largest = 0;
        for (int64_t c = 0; c < n; c++) {
            const int32_t magnitude = (int32_t)(hc_f32_bits(from[c]) & INT32_MAX);
            largest = magnitude > largest ? magnitude : largest;
        }
        const bool finite = largest < 0x7f800000;
        *legal = *legal && finite;
        return finite ? hc_f32_from_bits((uint32_t)largest) : NAN;
    }
    double absmax = 0;
    bool finite = true;
    for (int64_t c = first; c < first + n; c++) {
        const double magnitude = fabs(hc_row_value(x, i, c));
        finite = finite && hc_is_legal(magnitude);
        absmax = magnitude > absmax ? magnitude : absmax;
    }
    *legal = *legal && finite;
    return finite ? (float)absmax : NAN;
}

#endif
