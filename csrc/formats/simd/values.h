/* The values of a row, float32 or float64, as float32 for kernels.
 *
 * Kernels that compute quotients get float64 rounded to nearest (HC_NEAREST). A float32 scale is computed from the
 * largest magnitude rounded to nearest, and rounding is monotonic, so it is the largest of the rounded magnitudes. A code
 * near a midpoint is computed from the float64.
 *
 * Kernels that only round to fewer bits get float64 rounded to odd (HC_ODD): float32 if it is exact, otherwise the one of
 * its two neighbours whose last bit is 1. Thresholds have at most 22 bits and are multiples of 2^-148, so their last bit
 * is 0. A value is below, at or above such a threshold exactly if the value rounded to odd is. Values from float32's
 * largest to infinity become float32's largest, which has the last bit 1.
 */
#ifndef HC_VALUES_H
#define HC_VALUES_H

#include "formats/simd/simd.h"

enum { SLICE = 1024 /* values between two packings */ };

/* Exactly one is not NULL. */
typedef struct {
    const float *singles;
    const double *doubles;
} hc_values;

static inline hc_values row_values(const hc_float_rows *x, int64_t i) {
    const int64_t first = i * x->row_stride;
    if (x->dtype == HC_F64)
        return (hc_values){.doubles = (const double *)x->data + first};
    return (hc_values){.singles = (const float *)x->data + first};
}

static inline hc_values values_from(hc_values x, int64_t first) {
    if (x.doubles)
        return (hc_values){.doubles = x.doubles + first};
    return (hc_values){.singles = x.singles + first};
}

typedef enum { HC_NEAREST, HC_ODD } hc_rounding;

/* float32 of up to SLICE float64, and which these are: the maxima and the codes of a segment use the same ones. */
typedef struct {
    hc_rounding rounding;
    const double *from;
    int64_t n;
    _Alignas(HC_CACHE_LINE) float rounded[SLICE + 4 * UNIT];
} hc_floats;

static inline void init_floats(hc_rounding rounding, hc_floats *floats) {
    floats->rounding = rounding;
    floats->from = NULL;
    floats->n = 0;
}

static __attribute__((noinline)) void round_doubles(const double *x, int64_t n, hc_floats *floats) {
    float *restrict to = floats->rounded;
    int64_t i = 0;
    floats->from = x;
    floats->n = n;
    if (floats->rounding == HC_NEAREST) {
        for (; i < n; i++)
            to[i] = (float)x[i];
        return;
    }
    for (; i + UNIT <= n; i += UNIT)
        simd_odd(x + i, to + i);
    if (i < n) {
        double last[UNIT] = {0};
        memcpy(last, x + i, (size_t)(n - i) * sizeof *last);
        simd_odd(last, to + i);
    }
}

/* n values as float32, n at most SLICE if they are float64. */
static inline const float *round_values(hc_values x, int64_t n, hc_floats *floats) {
    if (!x.doubles)
        return x.singles;
    if (floats->from != x.doubles || floats->n != n)
        round_doubles(x.doubles, n, floats);
    return floats->rounded;
}

static inline bool is_finite(float value) { return (hc_f32_bits(value) & 0x7f800000) != 0x7f800000; }

/* Largest magnitude of n values. */
static inline float values_maximum(hc_values x, int64_t n, int which, hc_floats *floats) {
    uint32_t largest = 0;
    if (!x.doubles)
        return simd_maximum(x.singles, n, which);
    for (int64_t i = 0; i < n; i += SLICE) { /* compared as integers: NaN is the largest */
        const int64_t count = hc_min(SLICE, n - i);
        const float maximum = simd_maximum(round_values(values_from(x, i), count, floats), count, which);
        largest = largest > hc_f32_bits(maximum) ? largest : hc_f32_bits(maximum);
    }
    return hc_f32_from_bits(largest);
}

#endif
