/* Float64 kernels whose results determine codes: sums under H are chains of one fused multiply-add each, all other
 * operations are rounded one by one. One source is for every instruction set: only the length of a vector differs.
 */
#ifndef HC_KERNELS_PTQ_H
#define HC_KERNELS_PTQ_H

#include "base/base.h"

/* c[i * ldc + j] = fma(a[p * mr + i], b[p * ldb + j], c[i * ldc + j]), i < mr, j < nr, p = 0 .. k - 1 in this order.
 * ldb may be negative. */
typedef void hc_gemm_f64_fn(int64_t k, const double *a, const double *b, int64_t ldb, double *c, int64_t ldc);

/* y[i] = fma(alpha, x[i], y[i]) */
typedef void hc_axpy_f64_fn(int64_t n, double alpha, const double *x, double *y);

/* t = x / scale, or 0 if the scale is 0; code = clip(RNE(t) + zero, low, high), value = scale * (code - zero). A
 * quotient beyond 2^31 counts as 2^31. zero may be NULL: 0. */
typedef void hc_round_steps_fn(int64_t n, const double *x, const double *scale, const double *zero, double low,
                               double high, double *code, double *value);

/* t as above; code = number of the n_levels - 1 ascending thresholds below t, value = level[code] * scale. Item k of
 * the table of lane i is at k * stride + i * lane; with lane 0 all lanes share one table. */
typedef void hc_round_levels_fn(int64_t n, const double *x, const double *scale, int n_levels, const double *levels,
                                const double *thresholds, int64_t stride, int64_t lane, double *code, double *value);

#endif
