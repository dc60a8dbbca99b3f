/* Rows of x in lanes: functions that lanes.c and lanes_groups.c share. */
#ifndef HC_ROWS_LANES_H
#define HC_ROWS_LANES_H

#include "kernels/kernel.h"
#include "ops/product/product.h"

/* Writes rows [row, row + rows) of `out`, from `column` on, from transposed values (columns, ld). */
void hc_lanes_store(hc_pack_x32_fn *transpose, const hc_rows *out, int64_t row, int64_t rows, int64_t column,
                    int64_t columns, int64_t ld, const float *values);

/* Whether lanes_groups.c multiplies the sums by integer scales of groups. A product of order FOLDED then uses int8
 * codes once, where lanes.c would need several limbs of folded integers. */
bool hc_lanes_splits(const hc_product *product);
hc_work hc_lanes_groups_work(const hc_product *product);
hc_status hc_lanes_groups_run(const hc_product *product, bool split, hc_error *error);

#endif
