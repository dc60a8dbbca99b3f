/* Weights that kernels of rows read as they are stored. */
#ifndef HC_ROWS_STORED_H
#define HC_ROWS_STORED_H

#include "kernels/kernel.h"
#include "ops/product/product.h"

/* Whether a format's rows are int8 codes with one float32 scale per row. */
bool hc_rows_are_bytes(const hc_format *format);

/* Whether w has int8 codes as kernels read them, with one scale per row. */
bool hc_rows_direct_weights(const hc_product *product);

/* Whether w has two's complement 4-bit codes that the kernels rows_s4 and lanes_s4 read as they are stored.
 * *words is the number of 32-bit words of codes that share a 4-bit scale, or 0 if a row has only one scale. */
bool hc_rows_nibble_weights(const hc_product *product, int *words);

/* Sets the weights of `args` to args->n_w stored rows from row `first` on, and `scales` to their scales. */
void hc_rows_stored(const hc_product *product, int64_t first, hc_rows_s8_args *args, float *scales);

#endif
