/* Arrays that keep n of every m values (sparsity/nm.h), behind the formats: a format encodes and decodes rows of kept
 * values and knows nothing of the others; here they take their places between zeros.
 *
 * Columns are counted three ways: kept ones (the format's), whole ones (the user's), and whole ones padded run by run to
 * blocks of m, of which the last may stand for no column.
 */
#ifndef HC_SPARSE_H
#define HC_SPARSE_H

#include "kernels/kernel.h"
#include "ops/sources.h"

/* The rows of a packed array whose format has a pattern, as whole columns. */
void hc_sparse_source(hc_source *source, const hc_packed_context *context, int64_t rows);

/* out: float32 or float64 of the packed shape, any strides; all is checked. */
hc_status hc_sparse_dequantize(const hc_run *run, const hc_packed *packed, const hc_geometry *geometry,
                               const hc_view *out, hc_error *error);

/* hc_nm_masks with the fastest line, which is picked once an operation; NULL: there is none. */
hc_masks_nm_fn *hc_sparse_masks_line(const hc_run *run);
void hc_sparse_masks(hc_masks_nm_fn *line, const uint8_t *metadata, int64_t kept, int n, int m, int64_t first_block,
                     int64_t columns, uint64_t *masks);

/* As hc_few_floats: what is not kept meets no x. */
hc_status hc_sparse_few(const hc_run *run, const hc_packed *weights, const hc_geometry *geometry, int64_t first_row,
                        int64_t rows, const float *x, int64_t ldx, int64_t n_vectors, const hc_rows *out,
                        hc_error *error);

/* The same for formats with groups; *served is false, and nothing done, where a row is too long. */
hc_status hc_sparse_few_groups(const hc_run *run, const hc_packed *weights, const hc_geometry *geometry,
                               int64_t first_row, int64_t rows, const float *x, int64_t ldx, int64_t n_vectors,
                               const hc_rows *out, bool *served, hc_error *error);

/* The same for 2:4 and codes of 4 bits, from storage; *served is false for other groups and instruction sets too. */
hc_status hc_sparse_few_quads(const hc_run *run, const hc_packed *weights, const hc_geometry *geometry,
                              int64_t first_row, int64_t rows, const float *x, int64_t ldx, int64_t n_vectors,
                              const hc_rows *out, bool *served, hc_error *error);

/* As hc_few_integers, weights in a pattern, vectors not; *served is false, and nothing done, for what only panels do. */
hc_status hc_sparse_few_integers(const hc_run *run, hc_product_kind kind, const hc_packed *weights,
                                 const hc_geometry *geometry, int64_t first_row, int64_t rows, const hc_packed *x,
                                 const hc_geometry *x_geometry, int64_t first_vector, int64_t n_vectors,
                                 const hc_rows *out, bool *served, hc_error *error);

/* out[i, j] = fmaf chain over k ascending of x[i, k] * w[j, k] for the kept k alone; w is of hc_sparse_source. */
hc_status hc_sparse_gemm(const hc_run *run, const hc_source *x, const hc_source *w, const hc_rows *out,
                         hc_error *error);

/* The line of sparse_s8 for these weights, or NULL where the dense product serves them (better). */
const hc_kernel *hc_kept_line(hc_product_kind kind, const hc_source *w, const hc_run *run);

/* Whole columns [first_column, +columns), from a multiple of 8 on: the kept values into limb[0], their places among 8
 * columns into limb[1], 4 for every 8 columns; the last columns may be fewer. And the row scales. */
void hc_kept_integers(const hc_source *w, int64_t first_row, int64_t rows, int64_t first_column, int64_t columns,
                      const hc_int_tile *out);

#endif
