/* The bodies of the layers that work on rows: kernels/layers/layers.h. One file per instruction set compiles them. */
#include "kernels/layers/sums.h"
#ifdef __ARM_NEON
#include "base/lanes/neon.h"
#endif

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

/* HC_FLOATS rows of n values, one a lane, and back. */
static inline void hc_rows_to_lanes(int n, const float *x, hc_floats *value) {
    int i = 0;
#ifdef __ARM_NEON
    for (; i + 4 <= n; i += 4) {
        lanes four[4] = {lanes_load(x + i), lanes_load(x + n + i), lanes_load(x + 2 * n + i),
                         lanes_load(x + 3 * n + i)};
        lanes_transpose(four);
        for (int j = 0; j < 4; j++)
            value[i + j] = (hc_floats)four[j];
    }
#endif
    for (int l = 0; l < HC_FLOATS; l++)
        for (int rest = i; rest < n; rest++)
            ((float *)(value + rest))[l] = x[l * n + rest];
}
static inline void hc_lanes_to_rows(int n, const hc_floats *value, float *y) {
    int i = 0;
#ifdef __ARM_NEON
    for (; i + 4 <= n; i += 4) {
        lanes four[4] = {(lanes)value[i], (lanes)value[i + 1], (lanes)value[i + 2], (lanes)value[i + 3]};
        lanes_transpose(four);
        for (int l = 0; l < 4; l++)
            lanes_store(y + l * n + i, four[l]);
    }
#endif
    for (int l = 0; l < HC_FLOATS; l++)
        for (int rest = i; rest < n; rest++)
            y[l * n + rest] = ((const float *)(value + rest))[l];
}

/* HC_FLOATS short rows, one a lane, with the accumulators of hc_sum_16. */
enum { HC_SHORT = 32 };
static inline void hc_softmax_short(int n, const float *x, float *y) {
    hc_floats value[HC_SHORT], sum[HC_SUMS] = {{0}}, most = hc_of(-INFINITY);
    hc_rows_to_lanes(n, x, value);
    for (int i = 0; i < n; i++)
        most = hc_larger(most, value[i]);
    for (int i = 0; i < n; i++) {
        value[i] = hc_exp_of_less(value[i] - most);
        sum[i % HC_SUMS] += value[i];
    }
    for (int half = HC_SUMS / 2; half > 0; half /= 2)
        for (int i = 0; i < half; i++)
            sum[i] += sum[i + half];
    const hc_floats part = 1.0f / sum[0];
    for (int i = 0; i < n; i++)
        value[i] *= part;
    hc_lanes_to_rows(n, value, y);
}

static inline void hc_softmax_body(int64_t rows, int64_t n, const float *x, float *y) {
    for (; n < HC_SHORT && rows >= HC_FLOATS; rows -= HC_FLOATS, x += HC_FLOATS * n, y += HC_FLOATS * n)
        hc_softmax_short((int)n, x, y);
    for (int64_t r = 0; r < rows; r++, x += n, y += n) {
        hc_exp_below(n, x, hc_largest(n, x, -INFINITY), y);
        const float part = 1.0f / hc_sum_16(n, y);
        int64_t i = 0;
        for (; i + HC_FLOATS <= n; i += HC_FLOATS)
            *(hc_floats *)(y + i) = hc_load(y + i) * part;
        if (i < n)
            hc_store_some(y + i, n - i, hc_load_some(y + i, n - i, hc_of(0)) * part);
    }
}

/* Registers of values whose chains of steps run side by side. */
#ifdef __AVX512F__
enum { HC_GATES = 8 };
#elif defined(__AVX2__)
enum { HC_GATES = 4 };
#else
enum { HC_GATES = 1 };
#endif

/* HC_GATE_ERF, x P(X < x) for a normal X: fma(m, e^p(m), max(x, 0)), m = -|x|, p(m) = log P(X < m) by fma from the highest of
 * 12 coefficients down. m is at least -6.5, where the power is replaced by 0. NaN stays. Errors: at most 2 units in the last
 * place for x > 0, 3 from -1 on, 8 from -2 on, and 5e-8 below. */
static inline __attribute__((always_inline)) void hc_gelu_erf(const int n, hc_floats x[]) {
    static const float log_part[] = {
        -1.4269686543499915e-09f, -5.59927606502697e-08f,   -9.683071766630746e-07f, -9.63003003562335e-06f,
        -5.906076330575161e-05f,  -0.00020291727560106665f, -2.853036221495131e-06f, 0.004824912175536156f,
        0.036362092941999435f,    -0.3183022141456604f,     0.7978853583335876f,     -0.6931471824645996f,
    };
    hc_floats m[HC_GATES], p[HC_GATES], turned[HC_GATES];
#pragma GCC unroll 8
    for (int v = 0; v < n; v++) {
        m[v] = hc_at_least((hc_floats)((hc_ints)x[v] | INT32_MIN), hc_of(-6.5f));
        p[v] = hc_of(log_part[0]);
    }
#pragma GCC unroll 12
    for (size_t i = 1; i < sizeof log_part / sizeof *log_part; i++)
#pragma GCC unroll 8
        for (int v = 0; v < n; v++)
            p[v] = hc_fma(p[v], m[v], hc_of(log_part[i]));
    hc_exps_parts(n, p, turned);
#pragma GCC unroll 8
    for (int v = 0; v < n; v++) {
        const hc_floats part = p[v] * (hc_floats)(((hc_bits)turned[v] << 23) + (127u << 23)); /* at least 2^-37 */
        x[v] = hc_fma(m[v], hc_select(m[v] > hc_of(-6.5f), part, hc_of(0.0f)), hc_at_least(x[v], hc_of(0.0f)));
    }
}

static inline __attribute__((always_inline)) hc_floats hc_gated(const hc_gate_kind kind, hc_floats x) {
    hc_floats at = x;
    if (kind == HC_GATE_ERF) {
        hc_gelu_erf(1, &x);
        return x;
    }
    if (kind == HC_GATE_GELU)
        at = 1.5957691216f * (x + 0.044715f * x * x * x);
    return x / (1.0f + hc_exp(-at));
}

static inline __attribute__((always_inline)) void hc_gate_values(int64_t n, const hc_gate_kind kind, const float *x,
                                                                 const float *up, float *y) {
    int64_t i = 0;
    for (; kind == HC_GATE_ERF && i + HC_GATES * HC_FLOATS <= n; i += HC_GATES * HC_FLOATS) {
        hc_floats u[HC_GATES];
#pragma GCC unroll 8
        for (int v = 0; v < HC_GATES; v++)
            u[v] = *(const hc_floats *)(x + i + v * HC_FLOATS);
        hc_gelu_erf(HC_GATES, u);
#pragma GCC unroll 8
        for (int v = 0; v < HC_GATES; v++) {
            if (up)
                u[v] *= *(const hc_floats *)(up + i + v * HC_FLOATS);
            *(hc_floats *)(y + i + v * HC_FLOATS) = u[v];
        }
    }
    for (; i + HC_FLOATS <= n; i += HC_FLOATS) {
        hc_floats u = hc_gated(kind, *(const hc_floats *)(x + i));
        if (up)
            u *= *(const hc_floats *)(up + i);
        *(hc_floats *)(y + i) = u;
    }
    if (i < n) {
        float rest[HC_FLOATS] = {0};
        memcpy(rest, x + i, (size_t)(n - i) * sizeof *x);
        *(hc_floats *)rest = hc_gated(kind, *(const hc_floats *)rest);
        for (int64_t l = 0; l < n - i; l++)
            y[i + l] = up ? rest[l] * up[i + l] : rest[l];
    }
}

static inline void hc_gate_body(int64_t n, hc_gate_kind kind, const float *x, const float *up, float *y) {
    if (kind == HC_GATE_ERF)
        hc_gate_values(n, HC_GATE_ERF, x, up, y);
    else if (kind == HC_GATE_GELU)
        hc_gate_values(n, HC_GATE_GELU, x, up, y);
    else
        hc_gate_values(n, HC_GATE_SILU, x, up, y);
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
