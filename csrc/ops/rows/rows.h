/* What the paths that read rows of weights as they lie share. */
#ifndef HC_ROWS_PATHS_H
#define HC_ROWS_PATHS_H

#include "kernels/kernel.h"
#include "ops/product/product.h"

/* Whether a format's rows are int8 codes, one float32 scale a row. */
bool hc_rows_are_bytes(const hc_format *format);

/* Whether the codes of w are int8 as kernels read them, one scale a row. */
bool hc_rows_direct_weights(const hc_product *product);

/* Whether they are integers of 4 bits, two's complement, that the kernels rows_s4 and lanes_s4 read as they are stored: *words
 * 32-bit words of codes share a scale of 4 bits, or 0: a row has one scale alone. */
bool hc_rows_nibble_weights(const hc_product *product, int *words);
/* Weights as they are stored from a row on, args->n_w of them, and the scale of each row. */
void hc_rows_stored(const hc_product *product, int64_t first, hc_rows_s8_args *args, float *scales);

/* Rows as the signed digits of their folded integers, a plane each; so many planes, of which reading needs some. */
void hc_rows_load(const hc_source *source, int64_t first, int64_t rows, int64_t ld, int64_t plane, int8_t *to,
                  float *scales);
int64_t hc_rows_planes(const hc_source *source);

/* Of n values. */
int32_t hc_rows_sum(const int8_t *values, int64_t n);

/* lanes_groups.c: whether integer scales of groups multiply sums there, so that a product of order FOLDED takes int8 once
 * where `lanes` would have several digits of folded integers. */
bool hc_lanes_splits(const hc_product *product);
hc_work hc_lanes_groups_work(const hc_product *product);
hc_status hc_lanes_groups_run(const hc_product *product, bool split, hc_error *error);

#endif
