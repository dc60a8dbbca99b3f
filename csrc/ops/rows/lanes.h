/* Rows of x in lanes: what lanes.c and lanes_groups.c share, and what the first asks of the second. */
#ifndef HC_ROWS_LANES_H
#define HC_ROWS_LANES_H

#include "kernels/kernel.h"
#include "ops/product/product.h"

/* Rows [row, row + rows) of `out`, from `column` on, from values (columns, ld) that lie transposed. */
void hc_lanes_store(hc_pack_x32_fn *transpose, const hc_rows *out, int64_t row, int64_t rows, int64_t column,
                    int64_t columns, int64_t ld, const float *values);

/* Whether integer scales of groups multiply sums in lanes_groups.c, so that a product of order FOLDED takes int8 once
 * where lanes.c would have several limbs of folded integers. */
bool hc_lanes_splits(const hc_product *product);
hc_work hc_lanes_groups_work(const hc_product *product);
hc_status hc_lanes_groups_run(const hc_product *product, bool split, hc_error *error);

#endif
