/* Float64 kernels whose answers decide codes: sums under H are chains of one fused multiply-add each, all else is rounded
 * operation by operation. One source serves every instruction set: only the width of a vector differs.
 */
#ifndef HC_KERNELS_PTQ_H
#define HC_KERNELS_PTQ_H

#include "base/base.h"

/* c[i * ldc + j] = fma(a[p * mr + i], b[p * ldb + j], c[i * ldc + j]), i < mr, j < nr, p = 0 .. k - 1 in this order.
 * ldb may be negative. */
typedef void hc_gemm_f64_fn(int64_t k, const double *a, const double *b, int64_t ldb, double *c, int64_t ldc);

/* y[i] = fma(alpha, x[i], y[i]) */
typedef void hc_axpy_f64_fn(int64_t n, double alpha, const double *x, double *y);

/* t = x / scale, 0 where the scale is 0; code = clip(RNE(t) + zero, low, high), value = scale * (code - zero). A quotient
 * beyond 2^31 counts as 2^31. zero may be NULL: 0. */
typedef void hc_round_steps_fn(int64_t n, const double *x, const double *scale, const double *zero, double low,
                               double high, double *code, double *value);

/* t as above; code = how many of the n_levels - 1 ascending thresholds are below t, value = level[code] * scale. A table
 * begins at item * stride, and the one of lane i at item * stride + i * lane: 0 is one table for all. */
typedef void hc_round_levels_fn(int64_t n, const double *x, const double *scale, int n_levels, const double *levels,
                                const double *thresholds, int64_t stride, int64_t lane, double *code, double *value);

#endif
