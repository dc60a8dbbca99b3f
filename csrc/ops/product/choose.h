/* Which way a product goes, where several give the same bits; and what hc_explain shows of it.
 *
 * More than a few float vectors times what keeps n of every m: sparse_gemm.c skips, gemm.c multiplies decoded tiles. Which
 * is faster is measured once on a part of the operands, in one thread, and remembered by kind and size.
 */
#ifndef HC_CHOOSE_H
#define HC_CHOOSE_H

#include "ops/product/source.h"

/* The drivers, by the names that users see. */
typedef enum {
    HC_PATH_NONE = 0, /* nothing to multiply */
    HC_PATH_GEMV,
    HC_PATH_GEMV_INTEGERS,
    HC_PATH_SKIP,
    HC_PATH_SKIP_INTEGERS,
    HC_PATH_TILES,
    HC_PATH_FOLDED,
    HC_PATH_GROUPED,
    HC_N_PATHS
} hc_path;

/* Whether the product (w has a pattern, sums are floats) skips what is gone, rather than decode tiles of w. */
bool hc_choose_skip(const hc_run *run, const hc_source *x, const hc_source *w, const hc_rows *out);

/* Every driver asks at its entry: true inside hc_explain, which notes the path; the driver then does nothing. */
bool hc_only_explains(hc_path path);

#endif
