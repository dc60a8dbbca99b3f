/* Rows as signed limbs of their folded integers, one plane per limb. */
#ifndef HC_ROWS_LIMBS_H
#define HC_ROWS_LIMBS_H

#include "ops/product/product.h"

/* Writes rows of a source to hc_rows_planes(source) planes. Callers use only the planes that its limbs need. */
void hc_rows_load(const hc_source *source, int64_t first, int64_t rows, int64_t ld, int64_t plane, int8_t *to,
                  float *scales);
int64_t hc_rows_planes(const hc_source *source);

/* The sum of n values. */
int32_t hc_rows_sum(const int8_t *values, int64_t n);

#endif
