/* Shared by the layers: sums in HC_SUMS accumulators, and exp in steps that every compiler vectorizes (layers.h). */
#ifndef HC_KERNELS_LAYERS_SUMS_H
#define HC_KERNELS_LAYERS_SUMS_H

#include "kernels/layers/layers.h"

#include <math.h>
#include <string.h>

/* HC_FLOATS float32, and their bits: without vectors compilers process the following one value at a time. */
typedef float hc_floats __attribute__((vector_size(4 * HC_FLOATS), aligned(4), may_alias));
typedef int32_t hc_ints __attribute__((vector_size(4 * HC_FLOATS), aligned(4), may_alias));

static inline hc_floats hc_select(hc_ints taken, hc_floats yes, hc_floats no) {
    return (hc_floats)((taken & (hc_ints)yes) | (~taken & (hc_ints)no));
}

enum { HC_PARTS = HC_SUMS / HC_FLOATS };

/* Folds accumulator i with i + 8, + 4, + 2, + 1. */
static inline float hc_fold_sums(hc_floats *acc) {
    float some[HC_FLOATS];
    for (int half = HC_PARTS / 2; half > 0; half /= 2)
        for (int part = 0; part < half; part++)
            acc[part] += acc[part + half];
    memcpy(some, acc, sizeof some);
    for (int half = HC_FLOATS / 2; half > 0; half /= 2)
        for (int i = 0; i < half; i++)
            some[i] += some[i + half];
    return some[0];
}

/* Returns the sum of the terms i < n in HC_SUMS accumulators: TERM is a register of them from i on, LAST one. Accumulators
 * are never -0, so the zeros behind the last terms change nothing. */
#define HC_SUM_TERMS(n, TERM, LAST)                                                                                    \
    hc_floats acc[HC_PARTS] = {{0}};                                                                                   \
    int64_t at = 0;                                                                                                    \
    for (; at + HC_SUMS <= (n); at += HC_SUMS)                                                                         \
        for (int part = 0; part < HC_PARTS; part++) {                                                                  \
            const int64_t i = at + part * HC_FLOATS;                                                                   \
            acc[part] += TERM;                                                                                         \
        }                                                                                                              \
    if (at < (n)) {                                                                                                    \
        float rest[HC_SUMS] = {0};                                                                                     \
        for (int l = 0; l < (n) - at && l < HC_SUMS; l++) {                                                            \
            const int64_t i = at + l;                                                                                  \
            rest[l] = LAST;                                                                                            \
        }                                                                                                              \
        for (int part = 0; part < HC_PARTS; part++)                                                                    \
            acc[part] += hc_load(rest + part * HC_FLOATS);                                                             \
    }                                                                                                                  \
    return hc_fold_sums(acc);

static inline hc_floats hc_load(const float *from) { return *(const hc_floats *)from; }

static inline float hc_dot_16(int64_t n, const float *a, const float *b) {
    HC_SUM_TERMS(n, hc_load(a + i) * hc_load(b + i), a[i] * b[i])
}

static inline float hc_sum_16(int64_t n, const float *x) { HC_SUM_TERMS(n, hc_load(x + i), x[i]) }

/* The sum of (x - mean)^2 in the same order. */
static inline float hc_spread_16(int64_t n, const float *x, float mean) {
    HC_SUM_TERMS(n, (hc_load(x + i) - mean) * (hc_load(x + i) - mean), (x[i] - mean) * (x[i] - mean))
}

static inline hc_floats hc_larger(hc_floats most, hc_floats some) { return hc_select(some > most, some, most); }

/* The largest of `than` and of n values; NaN is ignored. */
static inline float hc_largest(int64_t n, const float *x, float than) {
    enum { TOGETHER = 4 };
    const hc_floats zero = {0};
    hc_floats most = zero + than;
    int64_t i = 0;
    if (n >= TOGETHER * HC_FLOATS) {
        hc_floats all[TOGETHER] = {most, most, most, most};
        for (; i + TOGETHER * HC_FLOATS <= n; i += TOGETHER * HC_FLOATS)
            for (int t = 0; t < TOGETHER; t++)
                all[t] = hc_larger(all[t], hc_load(x + i + t * HC_FLOATS));
        most = hc_larger(hc_larger(all[0], all[1]), hc_larger(all[2], all[3]));
    }
    for (; i + HC_FLOATS <= n; i += HC_FLOATS)
        most = hc_larger(most, hc_load(x + i));
    float some[HC_FLOATS];
    memcpy(some, &most, sizeof some);
    for (int half = HC_FLOATS / 2; half > 0; half /= 2)
        for (int l = 0; l < half; l++)
            some[l] = some[l + half] > some[l] ? some[l + half] : some[l];
    for (int l = 0; l < n - i && l < HC_FLOATS; l++)
        some[0] = x[i + l] > some[0] ? x[i + l] : some[0];
    return some[0];
}

/* Below -104 all is 0, above 89 infinity; NaN stays. */
static inline hc_floats hc_exp(hc_floats x) {
    const hc_floats zero = {0};
    hc_floats t = hc_select(x < -104.0f, zero - 104.0f, x);
    t = hc_select(t > 89.0f, zero + 89.0f, t);
    const hc_floats whole = (t * 1.44269504f + 12582912.0f) - 12582912.0f; /* rint: 1.5 * 2^23 leaves no fraction */
    const hc_floats r = (t - whole * 0.693359375f) - whole * -2.12194440e-4f;
    hc_floats p = zero + 1.9875691500e-4f;
    p = p * r + 1.3981999507e-3f;
    p = p * r + 8.3334519073e-3f;
    p = p * r + 4.1665795894e-2f;
    p = p * r + 1.6666665459e-1f;
    p = p * r + 5.0000001201e-1f;
    p = p * (r * r) + r + 1.0f;
    const hc_ints n = __builtin_convertvector(hc_select(x == x, whole, zero), hc_ints), half = n >> 1;
    return p * (hc_floats)((half + 127) << 23) * (hc_floats)((n - half + 127) << 23);
}

/* y = exp(x - largest); y may be x. */
static inline void hc_exp_below(int64_t n, const float *x, float largest, float *y) {
    int64_t i = 0;
    for (; i + HC_FLOATS <= n; i += HC_FLOATS)
        *(hc_floats *)(y + i) = hc_exp(*(const hc_floats *)(x + i) - largest);
    if (i < n) {
        float rest[HC_FLOATS] = {0};
        memcpy(rest, x + i, (size_t)(n - i) * sizeof *x);
        *(hc_floats *)rest = hc_exp(*(const hc_floats *)rest - largest);
        memcpy(y + i, rest, (size_t)(n - i) * sizeof *y);
    }
}

/* c tanh(s / c) */
static inline void hc_cap(int64_t n, float c, float *s) {
    const hc_floats zero = {0};
    int64_t i = 0;
    float rest[HC_FLOATS] = {0};
    for (; i < n; i += HC_FLOATS) {
        const int64_t some = hc_min(n - i, HC_FLOATS);
        memcpy(rest, s + i, (size_t)some * sizeof *s);
        const hc_floats e = hc_exp(2.0f * (*(const hc_floats *)rest / (zero + c))) + 1.0f;
        *(hc_floats *)rest = c * (1.0f - 2.0f / e);
        memcpy(s + i, rest, (size_t)some * sizeof *s);
    }
}

#endif
