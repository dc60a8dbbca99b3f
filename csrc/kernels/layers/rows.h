/* The bodies of the layers that work on rows: kernels/layers/layers.h. One file per instruction set compiles them. */
#include "kernels/layers/sums.h"

/* y = (x - mean) * factor, times weight, plus bias; each of them rounded. */
static inline __attribute__((always_inline)) void hc_norm_values(int64_t n, const float *x, const bool centered,
                                                                 float mean, float factor, const float *weight,
                                                                 const float *bias, float *y) {
    int64_t i = 0;
    for (; i + HC_FLOATS <= n; i += HC_FLOATS) {
        hc_floats d = hc_load(x + i);
        if (centered)
            d -= mean;
        d *= factor;
        if (weight)
            d *= hc_load(weight + i);
        if (bias)
            d += hc_load(bias + i);
        *(hc_floats *)(y + i) = d;
    }
    for (; i < n; i++) {
        float d = centered ? x[i] - mean : x[i];
        d *= factor;
        if (weight)
            d *= weight[i];
        if (bias)
            d += bias[i];
        y[i] = d;
    }
}

static inline void hc_norm_body(int64_t rows, int64_t n, const float *x, bool centered, float epsilon,
                                const float *weight, const float *bias, float *y) {
    for (int64_t r = 0; r < rows; r++, x += n, y += n) {
        const float mean = centered ? hc_sum_16(n, x) / (float)n : 0.0f;
        const float spread = centered ? hc_spread_16(n, x, mean) : hc_dot_16(n, x, x);
        const float factor = 1.0f / sqrtf(spread / (float)n + epsilon);
        if (centered)
            hc_norm_values(n, x, true, mean, factor, weight, bias, y);
        else
            hc_norm_values(n, x, false, 0.0f, factor, weight, bias, y);
    }
}

static inline void hc_softmax_body(int64_t rows, int64_t n, const float *x, float *y) {
    for (int64_t r = 0; r < rows; r++, x += n, y += n) {
        hc_exp_below(n, x, hc_largest(n, x, -INFINITY), y);
        const float part = 1.0f / hc_sum_16(n, y);
        int64_t i = 0;
        for (; i + HC_FLOATS <= n; i += HC_FLOATS)
            *(hc_floats *)(y + i) = hc_load(y + i) * part;
        for (; i < n; i++)
            y[i] *= part;
    }
}

static inline hc_floats hc_gated(bool gelu, hc_floats x) {
    hc_floats at = x;
    if (gelu)
        at = 1.5957691216f * (x + 0.044715f * x * x * x);
    return x / (1.0f + hc_exp(-at));
}

static inline __attribute__((always_inline)) void hc_gate_values(int64_t n, bool gelu, const float *x, const float *up,
                                                                 float *y) {
    int64_t i = 0;
    for (; i + HC_FLOATS <= n; i += HC_FLOATS) {
        hc_floats u = hc_gated(gelu, *(const hc_floats *)(x + i));
        if (up)
            u *= *(const hc_floats *)(up + i);
        *(hc_floats *)(y + i) = u;
    }
    if (i < n) {
        float rest[HC_FLOATS] = {0};
        memcpy(rest, x + i, (size_t)(n - i) * sizeof *x);
        *(hc_floats *)rest = hc_gated(gelu, *(const hc_floats *)rest);
        for (int64_t l = 0; l < n - i; l++)
            y[i + l] = up ? rest[l] * up[i + l] : rest[l];
    }
}

/* Half as many floats as a register has, and their values in float64. */
typedef float hc_half __attribute__((vector_size(2 * HC_FLOATS), aligned(4), may_alias));
typedef double hc_doubles __attribute__((vector_size(4 * HC_FLOATS)));
typedef int64_t hc_longs __attribute__((vector_size(4 * HC_FLOATS)));

static inline __attribute__((always_inline)) hc_doubles hc_select_double(hc_longs taken, hc_doubles yes,
                                                                         hc_doubles no) {
    return (hc_doubles)((taken & (hc_longs)yes) | (~taken & (hc_longs)no));
}

enum { ERF_PARTS = 4 /* registers whose chains run side by side */, ERF_VALUES = ERF_PARTS * HC_FLOATS / 2 };

/* Replaces t by erf(t). |t| < 4: t times a Chebyshev series of t^2 / 8 - 1, summed by Clenshaw's recurrence, with an error
 * below 2e-8. Beyond, it is the sign of t. */
static inline __attribute__((always_inline)) void hc_erf(hc_doubles *t) {
    static const double series[] = {
        0.48591295690286307,    -0.34540785500494975,    0.161829101213646,     -0.07648275610550886,
        0.034669936800507464,   -0.01481186414781473,    0.005922937956232057,  -0.002211840658810179,
        0.0007714154278403835,  -0.0002515965878095848,  7.688658221091806e-05, -2.2065495938874236e-05,
        5.961274041283321e-06,  -1.5197750687930365e-06, 3.664930258016531e-07, -8.378986749464708e-08,
        1.8200721725080663e-08, -3.760101540070524e-09,  7.174542677793196e-10,
    };
    const hc_doubles zero = {0};
    hc_doubles twice[ERF_PARTS], next[ERF_PARTS], after[ERF_PARTS];
#pragma GCC unroll 4
    for (int part = 0; part < ERF_PARTS; part++) {
        const hc_doubles u = t[part] * t[part] * 0.125 - 1.0;
        twice[part] = u + u;
        next[part] = after[part] = zero;
    }
    for (int i = (int)(sizeof series / sizeof *series) - 1; i > 0; i--)
#pragma GCC unroll 4
        for (int part = 0; part < ERF_PARTS; part++) {
            const hc_doubles now = twice[part] * next[part] - after[part] + series[i];
            after[part] = next[part];
            next[part] = now;
        }
#pragma GCC unroll 4
    for (int part = 0; part < ERF_PARTS; part++) {
        const hc_doubles x = t[part], u = 0.5 * twice[part]; /* exact */
        const hc_doubles sign = hc_select_double(x > 0.0, zero + 1.0, hc_select_double(x < 0.0, zero - 1.0, x));
        const hc_doubles inside = x * (u * next[part] - after[part] + series[0]);
        t[part] = hc_select_double((x > -4.0) & (x < 4.0), inside, sign);
    }
}

/* ERF_VALUES values. y may be x. */
static inline __attribute__((always_inline)) void hc_gelu_erf(const float *x, float *y) {
    hc_doubles wide[ERF_PARTS], t[ERF_PARTS];
#pragma GCC unroll 4
    for (int part = 0; part < ERF_PARTS; part++) {
        wide[part] = __builtin_convertvector(*(const hc_half *)(x + part * HC_FLOATS / 2), hc_doubles);
        t[part] = wide[part] * 0.70710678118654752;
    }
    hc_erf(t);
#pragma GCC unroll 4
    for (int part = 0; part < ERF_PARTS; part++)
        *(hc_half *)(y + part * HC_FLOATS / 2) = __builtin_convertvector(0.5 * wide[part] * (1.0 + t[part]), hc_half);
}

static inline void hc_gelu_erf_values(int64_t n, const float *x, const float *up, float *y) {
    for (int64_t i = 0; i < n; i += ERF_VALUES) {
        const int64_t some = hc_min(n - i, ERF_VALUES);
        float all[ERF_VALUES] = {0};
        memcpy(all, x + i, (size_t)some * sizeof *x);
        hc_gelu_erf(all, all);
        for (int64_t l = 0; l < some; l++)
            y[i + l] = up ? all[l] * up[i + l] : all[l];
    }
}

static inline void hc_gate_body(int64_t n, hc_gate_kind kind, const float *x, const float *up, float *y) {
    if (kind == HC_GATE_ERF)
        hc_gelu_erf_values(n, x, up, y);
    else if (kind == HC_GATE_GELU)
        hc_gate_values(n, true, x, up, y);
    else
        hc_gate_values(n, false, x, up, y);
}

static inline void hc_rope_body(const hc_rope_form *form, int64_t first, int64_t rows, const float *x,
                                const float *cosine, const float *sine, float *restrict y) {
    const int64_t half = form->half, step = form->pairs ? 2 : 1, apart = form->pairs ? 1 : half;
    for (int64_t r = first; r < first + rows; r++) {
        const float *from = x + r * form->width;
        float *to = y + r * form->width;
        const int64_t turn = r / form->repeat % form->turns * half;
        const float *c = cosine + turn, *s = sine + turn;
        for (int64_t i = 0; i < half; i++) {
            const float a = from[i * step], b = from[i * step + apart];
            to[i * step] = a * c[i] - b * s[i];
            to[i * step + apart] = a * s[i] + b * c[i];
        }
        for (int64_t i = 2 * half; i < form->width; i++)
            to[i] = from[i];
    }
}

#define HC_LAYER_ROWS(isa)                                                                                             \
    void hc_norm_##isa(int64_t rows, int64_t n, const float *x, bool centered, float epsilon, const float *weight,     \
                       const float *bias, float *y) {                                                                  \
        hc_norm_body(rows, n, x, centered, epsilon, weight, bias, y);                                                  \
    }                                                                                                                  \
    void hc_softmax_##isa(int64_t rows, int64_t n, const float *x, float *y) { hc_softmax_body(rows, n, x, y); }       \
    void hc_gate_##isa(int64_t n, hc_gate_kind kind, const float *x, const float *up, float *y) {                      \
        hc_gate_body(n, kind, x, up, y);                                                                               \
    }                                                                                                                  \
    void hc_rope_##isa(const hc_rope_form *form, int64_t first, int64_t rows, const float *x, const float *cosine,     \
                       const float *sine, float *y) {                                                                  \
        hc_rope_body(form, first, rows, x, cosine, sine, y);                                                           \
    }
