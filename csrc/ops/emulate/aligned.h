/* Sums of aligned products, as tensor cores add them, for the rows of a block of columns. */
#ifndef HC_EMULATE_ALIGNED_H
#define HC_EMULATE_ALIGNED_H

#include "hc_emulate.h"

enum { HC_ALIGNED_COLUMNS = 8 };

/* The largest power of two up to |value|, at least 2^smallest; 0 for 0. */
float hc_aligned_power(float value, int smallest);

/* Products of one row with the columns of a block.
 *
 *   a, a_power (k)          values and their hc_aligned_power
 *   b, b_power (k, COLUMNS) the same for the columns of the block
 */
void hc_aligned_row(const hc_float_sum *sum, int64_t k, const float *a, const float *a_power, const float *b,
                    const float *b_power, double total[HC_ALIGNED_COLUMNS]);

#endif
