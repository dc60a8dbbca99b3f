/* Packed rows as a source has them. */
#ifndef HC_PACKED_ROWS_H
#define HC_PACKED_ROWS_H

#include "ops/product/product.h"

/* The two functions of a source whose context is an hc_packed_context; where the format keeps n of every m, columns here are the kept ones. */
void hc_packed_floats(const hc_source *source, int64_t first_row, int64_t rows, int64_t first_column, int64_t columns,
                      float *values, int64_t ld);
void hc_packed_integers(const hc_source *source, hc_int_mode mode, int64_t first_row, int64_t rows,
                        int64_t first_column, int64_t columns, const hc_int_tile *out);

#endif
