/* Shared by the layers: sums in HC_SUMS accumulators, and exp in steps that every compiler vectorizes (layers.h). */
#ifndef HC_KERNELS_LAYERS_SUMS_H
#define HC_KERNELS_LAYERS_SUMS_H

#include "kernels/layers/layers.h"

#include <math.h>
#include <string.h>
#ifdef __ARM_NEON
#include <arm_neon.h>
#endif

/* HC_FLOATS float32, and their bits: without vectors compilers process the following one value at a time. */
typedef float hc_floats __attribute__((vector_size(4 * HC_FLOATS), aligned(4), may_alias));
typedef int32_t hc_ints __attribute__((vector_size(4 * HC_FLOATS), aligned(4), may_alias));
typedef uint32_t hc_bits __attribute__((vector_size(4 * HC_FLOATS), aligned(4), may_alias));

static inline hc_floats hc_select(hc_ints taken, hc_floats yes, hc_floats no) {
    return (hc_floats)((taken & (hc_ints)yes) | (~taken & (hc_ints)no));
}

/* hc_of: x in all lanes. hc_fma: x y + z, rounded once. hc_at_least and hc_at_most: the bound if x is beyond it, otherwise x, NaN too. hc_larger:
 * the larger one, `most` if `some` is NaN. */
#if HC_FLOATS == 16
#include <immintrin.h>
static inline hc_floats hc_of(float x) { return (hc_floats)_mm512_set1_ps(x); }
static inline hc_floats hc_fma(hc_floats x, hc_floats y, hc_floats z) {
    return (hc_floats)_mm512_fmadd_ps((__m512)x, (__m512)y, (__m512)z);
}
static inline hc_floats hc_at_least(hc_floats x, hc_floats bound) {
    return (hc_floats)_mm512_max_ps((__m512)bound, (__m512)x); /* the second operand if one is NaN */
}
static inline hc_floats hc_at_most(hc_floats x, hc_floats bound) {
    return (hc_floats)_mm512_min_ps((__m512)bound, (__m512)x);
}
static inline hc_floats hc_larger(hc_floats most, hc_floats some) {
    return (hc_floats)_mm512_max_ps((__m512)some, (__m512)most);
}
#elif HC_FLOATS == 8
#include <immintrin.h>
static inline hc_floats hc_of(float x) { return (hc_floats)_mm256_set1_ps(x); }
static inline hc_floats hc_fma(hc_floats x, hc_floats y, hc_floats z) {
    return (hc_floats)_mm256_fmadd_ps((__m256)x, (__m256)y, (__m256)z);
}
static inline hc_floats hc_at_least(hc_floats x, hc_floats bound) {
    return (hc_floats)_mm256_max_ps((__m256)bound, (__m256)x); /* the second operand if one is NaN */
}
static inline hc_floats hc_at_most(hc_floats x, hc_floats bound) {
    return (hc_floats)_mm256_min_ps((__m256)bound, (__m256)x);
}
static inline hc_floats hc_larger(hc_floats most, hc_floats some) {
    return (hc_floats)_mm256_max_ps((__m256)some, (__m256)most);
}
#else
static inline hc_floats hc_of(float x) { return (hc_floats){x, x, x, x}; }
static inline hc_floats hc_fma(hc_floats x, hc_floats y, hc_floats z) {
#ifdef __ARM_NEON
    return (hc_floats)vfmaq_f32((float32x4_t)z, (float32x4_t)x, (float32x4_t)y);
#else
    hc_floats sum = {0};
    for (int l = 0; l < HC_FLOATS; l++)
        sum[l] = fmaf(x[l], y[l], z[l]);
    return sum;
#endif
}
static inline hc_floats hc_at_least(hc_floats x, hc_floats bound) { return hc_select(x < bound, bound, x); }
static inline hc_floats hc_at_most(hc_floats x, hc_floats bound) { return hc_select(x > bound, bound, x); }
static inline hc_floats hc_larger(hc_floats most, hc_floats some) { return hc_select(some > most, some, most); }
#endif

enum { HC_PARTS = HC_SUMS / HC_FLOATS };

/* The first n floats, fewer than HC_FLOATS or all, then `other`: no byte behind them is read, or written below. From a
 * buffer that was written in parts, a register would have to wait for it. */
#if HC_FLOATS == 16
static inline __mmask16 hc_lanes_below(int64_t n) { return n >= 16 ? 0xffff : (__mmask16)((1u << n) - 1); }
static inline hc_floats hc_load_some(const float *from, int64_t n, hc_floats other) {
    return (hc_floats)_mm512_mask_loadu_ps((__m512)other, hc_lanes_below(n), from);
}
static inline void hc_store_some(float *to, int64_t n, hc_floats x) {
    _mm512_mask_storeu_ps(to, hc_lanes_below(n), (__m512)x);
}
#elif HC_FLOATS == 8
static inline __m256i hc_lanes_below(int64_t n) {
    return _mm256_cmpgt_epi32(_mm256_set1_epi32((int)hc_min(n, 8)), _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7));
}
static inline hc_floats hc_load_some(const float *from, int64_t n, hc_floats other) {
    const __m256i exist = hc_lanes_below(n);
    return (hc_floats)_mm256_blendv_ps((__m256)other, _mm256_maskload_ps(from, exist), (__m256)exist);
}
static inline void hc_store_some(float *to, int64_t n, hc_floats x) {
    _mm256_maskstore_ps(to, hc_lanes_below(n), (__m256)x);
}
#elif defined(__ARM_NEON)
static inline hc_floats hc_load_some(const float *from, int64_t n, hc_floats other) {
    float32x4_t x = (float32x4_t)other;
    if (n >= HC_FLOATS)
        return (hc_floats)vld1q_f32(from);
    x = n > 0 ? vld1q_lane_f32(from, x, 0) : x;
    x = n > 1 ? vld1q_lane_f32(from + 1, x, 1) : x;
    return (hc_floats)(n > 2 ? vld1q_lane_f32(from + 2, x, 2) : x);
}
static inline void hc_store_some(float *to, int64_t n, hc_floats x) {
    if (n >= HC_FLOATS)
        vst1q_f32(to, (float32x4_t)x);
    for (int i = 0; i < n && n < HC_FLOATS; i++)
        to[i] = x[i];
}
#else
static inline hc_floats hc_load_some(const float *from, int64_t n, hc_floats other) {
    memcpy(&other, from, (size_t)hc_min(n, HC_FLOATS) * sizeof *from);
    return other;
}
static inline void hc_store_some(float *to, int64_t n, hc_floats x) {
    memcpy(to, &x, (size_t)hc_min(n, HC_FLOATS) * sizeof *to);
}
#endif

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

static inline float hc_sum_16(int64_t n, const float *x) {
    const hc_floats zero = {0};
    hc_floats acc[HC_PARTS] = {{0}};
    int64_t i = 0;
    for (; i + HC_SUMS <= n; i += HC_SUMS)
        for (int part = 0; part < HC_PARTS; part++)
            acc[part] += hc_load(x + i + part * HC_FLOATS);
    for (int part = 0; i < n; part++, i += HC_FLOATS)
        acc[part] += hc_load_some(x + i, n - i, zero);
    return hc_fold_sums(acc);
}

/* The sum of (x - mean)^2 in the same order. */
static inline float hc_spread_16(int64_t n, const float *x, float mean) {
    HC_SUM_TERMS(n, (hc_load(x + i) - mean) * (hc_load(x + i) - mean), (x[i] - mean) * (x[i] - mean))
}

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
    if (i < n)
        most = hc_larger(most, hc_load_some(x + i, n - i, most));
    float some[HC_FLOATS];
    memcpy(some, &most, sizeof some);
    for (int half = HC_FLOATS / 2; half > 0; half /= 2)
        for (int l = 0; l < half; l++)
            some[l] = some[l + half] > some[l] ? some[l + half] : some[l];
    return some[0];
}

/* exp(x) is p 2^n, n in the last bits of `turned`, the sum of n and 1.5 * 2^23. */
static inline __attribute__((always_inline)) void hc_exps_parts(const int n, hc_floats x[], hc_floats turned[]) {
    static const float log2_parts[] = {-0.693359375f, 2.12194440e-4f};
    static const float part[] = {
        1.4061316614970565e-3f,
        8.379030041396618e-3f,
        4.166477546095848e-2f,
        0.16666364669799805f,
        0.5000000596046448f,
        1.0f,
        1.0f,
    };
    const hc_floats middle = hc_of(12582912.0f);
    hc_floats r[8];
#pragma GCC unroll 8
    for (int v = 0; v < n; v++)
        turned[v] = hc_fma(x[v], hc_of(1.44269504f), middle); /* rint(x / log(2)): no fraction fits */
#pragma GCC unroll 8
    for (int v = 0; v < n; v++)
        r[v] = hc_fma(turned[v] - middle, hc_of(log2_parts[0]), x[v]);
#pragma GCC unroll 8
    for (int v = 0; v < n; v++) {
        r[v] = hc_fma(turned[v] - middle, hc_of(log2_parts[1]), r[v]);
        x[v] = hc_of(part[0]);
    }
#pragma GCC unroll 8
    for (size_t i = 1; i < sizeof part / sizeof *part; i++)
#pragma GCC unroll 8
        for (int v = 0; v < n; v++)
            x[v] = hc_fma(x[v], r[v], hc_of(part[i]));
}
static inline hc_floats hc_exp_parts(hc_floats x, hc_floats *turned) {
    hc_exps_parts(1, &x, turned);
    return x;
}

/* Below -104 all is 0, above 89 infinity; NaN stays. 2^n is the product of two powers, since n may be below -126. */
static inline hc_floats hc_exp(hc_floats x) {
    hc_floats turned;
    const hc_floats p = hc_exp_parts(hc_at_most(hc_at_least(x, hc_of(-104.0f)), hc_of(89.0f)), &turned);
    const hc_bits n = (hc_bits)turned - (0x4b400000u - 254), half = n >> 1; /* n + 254, and its half */
    return p * (hc_floats)(half << 23) * (hc_floats)((n - half) << 23);
}

/* hc_exp(x) of x <= 0 or NaN: 2^n is 2^(n + 64) 2^-64. */
static inline hc_floats hc_exp_of_less(hc_floats x) {
    hc_floats turned;
    const hc_floats p = hc_exp_parts(hc_at_least(x, hc_of(-104.0f)), &turned);
    return p * (hc_floats)(((hc_bits)turned << 23) + ((127u + 64) << 23)) * 0x1p-64f;
}

/* y = exp(x - largest), largest >= x; y may be x. */
static inline void hc_exp_below(int64_t n, const float *x, float largest, float *y) {
    int64_t i = 0;
    for (; i + HC_FLOATS <= n; i += HC_FLOATS)
        *(hc_floats *)(y + i) = hc_exp_of_less(*(const hc_floats *)(x + i) - largest);
    if (i < n)
        hc_store_some(y + i, n - i, hc_exp_of_less(hc_load_some(x + i, n - i, hc_of(largest)) - largest));
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
