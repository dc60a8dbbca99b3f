/* Weights that kernels of rows read as they are stored. */
#ifndef HC_ROWS_STORED_H
#define HC_ROWS_STORED_H

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

#endif
