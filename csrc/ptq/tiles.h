/* Float64 matmuls in tiles of the kernels, for the files of this folder. */
#ifndef HC_PTQ_TILES_H
#define HC_PTQ_TILES_H

#include "kernels/kernel.h"

/* Size of one packed part: TALL rows and WIDE columns of the product, multiples of every tile, with DEPTH values each.
 * A panel has one more cache line, so that panels are not a power of two apart. */
enum { HC_PTQ_DEPTH = 256, HC_PTQ_TALL = 48, HC_PTQ_WIDE = 192, HC_PTQ_TILE = 16 };
enum { HC_PTQ_PACK = (HC_PTQ_DEPTH + 1) * (HC_PTQ_TALL + HC_PTQ_WIDE) };

/* c[i][j] = fma(a[p * a_depth + i], sign * b[p * ldb + j], c[i][j]), i < m, j < n, p = 0 .. k - 1 in this order.
 * Strides of the depth may be negative. `pack` is memory of the thread, HC_PTQ_PACK items. */
void hc_ptq_multiply(const hc_kernel *gemm, int64_t m, int64_t n, int64_t k, double sign, const double *a,
                     int64_t a_depth, const double *b, int64_t ldb, double *c, int64_t ldc, double *pack);

#endif
