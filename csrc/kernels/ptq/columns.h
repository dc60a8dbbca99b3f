/* The bodies of kernels/ptq/ptq.h, for vectors of HC_LANES float64. HC_FUSED(x, y, z) is x * y + z of vectors, x a
 * number, rounded once. Only the loop over `p` has an order, so compilers may use any vectors for the others.
 */
#include "kernels/kernel.h"

#include <math.h>
#include <string.h>

typedef double hc_lanes __attribute__((vector_size(8 * HC_LANES), aligned(8), may_alias));
enum { HC_NV = HC_NR / HC_LANES, HC_CHUNK = 4 * HC_LANES };

static inline void hc_gemm_f64_body(int64_t k, const double *a, const double *b, int64_t ldb, double *c, int64_t ldc) {
    hc_lanes sum[HC_MR][HC_NV];
#pragma GCC unroll 16
    for (int i = 0; i < HC_MR; i++)
#pragma GCC unroll 4
        for (int v = 0; v < HC_NV; v++)
            sum[i][v] = *(const hc_lanes *)(c + i * ldc + v * HC_LANES);
    for (; k > 0; k--, a += HC_MR, b += ldb) {
        hc_lanes right[HC_NV];
#pragma GCC unroll 4
        for (int v = 0; v < HC_NV; v++)
            right[v] = *(const hc_lanes *)(b + v * HC_LANES);
#pragma GCC unroll 16
        for (int i = 0; i < HC_MR; i++)
#pragma GCC unroll 4
            for (int v = 0; v < HC_NV; v++)
                sum[i][v] = (hc_lanes)HC_FUSED(a[i], right[v], sum[i][v]);
    }
#pragma GCC unroll 16
    for (int i = 0; i < HC_MR; i++)
#pragma GCC unroll 4
        for (int v = 0; v < HC_NV; v++)
            *(hc_lanes *)(c + i * ldc + v * HC_LANES) = sum[i][v];
}

static inline void hc_axpy_f64_body(int64_t n, double alpha, const double *restrict x, double *restrict y) {
    for (int64_t i = 0; i < n; i++)
        y[i] = fma(alpha, x[i], y[i]);
}

typedef int64_t hc_counts __attribute__((vector_size(8 * HC_LANES), aligned(8), may_alias));

static inline hc_lanes hc_select(hc_counts mask, hc_lanes yes, hc_lanes no) {
    return (hc_lanes)((mask & (hc_counts)yes) | (~mask & (hc_counts)no));
}

/* NaN becomes the bound. Sums of finite values below 2^500 give no NaN. */
static inline hc_lanes hc_within(hc_lanes t, hc_lanes low, hc_lanes high) {
    t = hc_select(t > low, t, low);
    return hc_select(t < high, t, high);
}

/* x / scale, or 0 if the scale is 0. */
static inline hc_lanes hc_quotient(const double *x, const double *scale) {
    const hc_lanes divisor = *(const hc_lanes *)scale, none = {0};
    return hc_select(divisor > none, *(const hc_lanes *)x / divisor, none);
}

static inline void hc_round_vector(const double *x, const double *scale, hc_lanes zero, double low, double high,
                                   double *code, double *value) {
    const hc_lanes none = {0}, least = none + low, most = none + high, edge = none + 0x1p31;
    const hc_lanes t = hc_within(hc_quotient(x, scale), -edge, edge);
    /* nearest, ties to even, for |t| <= 2^31: the sum has no bits below 1 */
    const hc_lanes found = hc_within(((t + 0x1.8p52) - 0x1.8p52) + zero, least, most);
    *(hc_lanes *)code = found;
    *(hc_lanes *)value = *(const hc_lanes *)scale * (found - zero);
}

static inline void hc_round_steps_body(int64_t n, const double *x, const double *scale, const double *zero, double low,
                                       double high, double *code, double *value) {
    const hc_lanes none = {0};
    int64_t i = 0;
    for (; i + HC_LANES <= n; i += HC_LANES)
        hc_round_vector(x + i, scale + i, zero ? *(const hc_lanes *)(zero + i) : none, low, high, code + i, value + i);
    if (i == n)
        return;
    double rest[5][HC_LANES] = {{0}};
    const size_t bytes = (size_t)(n - i) * sizeof *x;
    memcpy(rest[0], x + i, bytes);
    memcpy(rest[1], scale + i, bytes);
    if (zero)
        memcpy(rest[2], zero + i, bytes);
    hc_round_vector(rest[0], rest[1], *(const hc_lanes *)rest[2], low, high, rest[3], rest[4]);
    memcpy(code + i, rest[3], bytes);
    memcpy(value + i, rest[4], bytes);
}

/* Number of thresholds below each t of a chunk. */
static inline void hc_count(const double *t, int n_thresholds, const double *thresholds, int64_t stride, int64_t lane,
                            int64_t *counts) {
    hc_lanes left[HC_CHUNK / HC_LANES];
    hc_counts found[HC_CHUNK / HC_LANES] = {0};
#pragma GCC unroll 8
    for (int v = 0; v < HC_CHUNK / HC_LANES; v++)
        left[v] = *(const hc_lanes *)(t + v * HC_LANES);
    for (int level = 0; level < n_thresholds; level++)
#pragma GCC unroll 8
        for (int v = 0; v < HC_CHUNK / HC_LANES; v++) {
            const double *above = thresholds + level * stride;
            hc_lanes bound = {0};
            if (lane)
                bound = *(const hc_lanes *)(above + v * HC_LANES);
            else
                bound = bound + *above;
            found[v] -= left[v] > bound;
        }
#pragma GCC unroll 8
    for (int v = 0; v < HC_CHUNK / HC_LANES; v++)
        *(hc_counts *)(counts + v * HC_LANES) = found[v];
}

static inline void hc_round_levels_body(int64_t n, const double *x, const double *scale, int n_levels,
                                        const double *levels, const double *thresholds, int64_t stride, int64_t lane,
                                        double *code, double *value) {
    for (int64_t first = 0; first < n; first += HC_CHUNK) {
        const int64_t count = n - first < HC_CHUNK ? n - first : HC_CHUNK;
        double t[HC_CHUNK] = {0};
        int64_t counts[HC_CHUNK] = {0}, i = 0;
        for (; i + HC_LANES <= count; i += HC_LANES)
            *(hc_lanes *)(t + i) = hc_quotient(x + first + i, scale + first + i);
        for (; i < count; i++)
            t[i] = scale[first + i] > 0 ? x[first + i] / scale[first + i] : 0.0;
        if (lane == 0)
            hc_count(t, n_levels - 1, thresholds, stride, 0, counts);
        else if (count == HC_CHUNK)
            hc_count(t, n_levels - 1, thresholds + first, stride, 1, counts);
        else
            for (int level = 0; level < n_levels - 1; level++)
                for (i = 0; i < count; i++)
                    counts[i] += t[i] > thresholds[level * stride + first + i];
        for (i = 0; i < count; i++) {
            code[first + i] = (double)counts[i];
            value[first + i] = levels[counts[i] * stride + (first + i) * lane] * scale[first + i];
        }
    }
}

#define HC_COLUMNS(isa)                                                                                                \
    void hc_gemm_f64_##isa(int64_t k, const double *a, const double *b, int64_t ldb, double *c, int64_t ldc) {         \
        hc_gemm_f64_body(k, a, b, ldb, c, ldc);                                                                        \
    }                                                                                                                  \
    void hc_axpy_f64_##isa(int64_t n, double alpha, const double *x, double *y) { hc_axpy_f64_body(n, alpha, x, y); }  \
    void hc_round_steps_##isa(int64_t n, const double *x, const double *scale, const double *zero, double low,         \
                              double high, double *code, double *value) {                                              \
        if (zero)                                                                                                      \
            hc_round_steps_body(n, x, scale, zero, low, high, code, value);                                            \
        else                                                                                                           \
            hc_round_steps_body(n, x, scale, NULL, low, high, code, value);                                            \
    }                                                                                                                  \
    void hc_round_levels_##isa(int64_t n, const double *x, const double *scale, int n_levels, const double *levels,    \
                               const double *thresholds, int64_t stride, int64_t lane, double *code, double *value) {  \
        hc_round_levels_body(n, x, scale, n_levels, levels, thresholds, stride, lane, code, value);                    \
    }
