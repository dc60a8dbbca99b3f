/* Arrays that keep n of every m values (sparsity/nm.h). A format encodes and decodes rows of nonzeros and does not know
 * the pattern. The functions here expand the nonzeros to whole columns.
 *
 * Columns are counted in three ways: nonzeros (the format's columns), whole columns (the user's), and whole columns
 * padded run by run to blocks of m. Positions of the padding stand for no column.
 */
#ifndef HC_SPARSE_H
#define HC_SPARSE_H

#include "kernels/kernel.h"
#include "ops/product/product.h"
#include "sparsity/nm.h"

/* The two functions of a source whose context is an hc_packed_context with a pattern: whole columns. */
void hc_sparse_floats(const hc_source *source, int64_t first_row, int64_t rows, int64_t first_column, int64_t columns,
                      float *values, int64_t ld);
void hc_sparse_integers(const hc_source *source, hc_int_mode mode, int64_t first_row, int64_t rows,
                        int64_t first_column, int64_t columns, const hc_int_tile *out);

/* As hc_dequantize_slab, for any first and count if axis 0 is not one of several reduction axes. The caller has checked
 * all arguments. */
hc_status hc_sparse_dequantize(const hc_run *run, const hc_packed *packed, const hc_geometry *geometry, int64_t first,
                               int64_t count, const hc_view *out, hc_error *error);

/* hc_nm_masks of one pattern by the fastest kernel, or by a table. */
typedef struct {
    hc_masks_nm_fn *lines[2]; /* or NULL; the second handles rows that the first declines */
    const hc_nm_table *table; /* or NULL */
    int n, m;
} hc_sparse_masks;
void hc_sparse_masks_init(hc_sparse_masks *job, const hc_run *run, int n, int m);
void hc_sparse_masks_of(const hc_sparse_masks *job, const uint8_t *metadata, int64_t kept, int64_t first_block,
                        int64_t columns, uint64_t *masks);

/* The kernel of gemm_nm_s8 for these folded integers, or NULL and the reason. */
const hc_kernel *hc_nm_kernel(const hc_source *w, const hc_run *run);
const char *hc_nm_kernel_refusal(const hc_source *w, const hc_run *run);

/* Layout of the integer nonzeros of a pattern: 4 of every kr whole columns. The index of a nonzero in its kr columns is
 * its position in the block of m XOR a byte of `base`. The lowest byte belongs to the first. */
typedef struct {
    int kr, per_step; /* nonzeros of kr columns, 1 to 4; zeros follow them */
    uint32_t base;
    hc_gemv_unpack_fn *unpack;
} hc_nm_form;
void hc_nm_form_init(hc_nm_form *form, const hc_format *format, int kr, const hc_run *run);

/* Whole columns [first_column, +columns), from a multiple of kr on: nonzeros into limb[0], their positions into
 * limb[1], 4 for every kr columns (fewer for the last columns), and the scales of rows. limb[2] is overwritten. */
void hc_nm_integers(const hc_source *w, const hc_nm_form *form, int64_t first_row, int64_t rows, int64_t first_column,
                    int64_t columns, const hc_int_tile *out);

#endif
