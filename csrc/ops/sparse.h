/* Arrays that keep n of every m values (sparsity/nm.h), behind the formats: a format encodes and decodes rows of kept
 * values and knows nothing of the others; here they take their places between zeros.
 *
 * Columns are counted three ways: kept ones (the format's), whole ones (the user's), and whole ones padded run by run to
 * blocks of m, of which the last may stand for no column.
 */
#ifndef HC_SPARSE_H
#define HC_SPARSE_H

#include "ops/sources.h"

/* The rows of a packed array whose format has a pattern, as whole columns. */
void hc_sparse_source(hc_source *source, const hc_packed_context *context, int64_t rows);

/* out: float32 or float64 of the packed shape, any strides; all is checked. */
hc_status hc_sparse_dequantize(const hc_run *run, const hc_packed *packed, const hc_geometry *geometry,
                               const hc_view *out, hc_error *error);

/* As hc_few_floats: what is not kept meets no x. */
hc_status hc_sparse_few(const hc_run *run, const hc_packed *weights, const hc_geometry *geometry, int64_t first_row,
                        int64_t rows, const float *x, int64_t ldx, int64_t n_vectors, const hc_rows *out,
                        hc_error *error);

/* out[i, j] = fmaf chain over k ascending of x[i, k] * w[j, k] for the kept k alone; w is of hc_sparse_source. */
hc_status hc_sparse_gemm(const hc_run *run, const hc_source *x, const hc_source *w, const hc_rows *out,
                         hc_error *error);

#endif
