/* Packed rows as the context of a source. */
#ifndef HC_PACKED_ROWS_H
#define HC_PACKED_ROWS_H

#include "ops/product/product.h"

/* The two functions of a source whose context is an hc_packed_context. If the format keeps n of every m values, columns
 * here are the nonzeros. */
void hc_packed_floats(const hc_source *source, int64_t first_row, int64_t rows, int64_t first_column, int64_t columns,
                      float *values, int64_t ld);
void hc_packed_integers(const hc_source *source, hc_int_mode mode, int64_t first_row, int64_t rows,
                        int64_t first_column, int64_t columns, const hc_int_tile *out);

#endif
