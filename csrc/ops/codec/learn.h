/* Codebooks that are learned while encoding: one per row, learned right before the row is encoded, or one for the whole
 * array, learned before the first row.
 *
 * Memory: values as float32 (with importance 8 bytes more per value, and a row of importance), and the format's
 * learn_bytes. This is per thread for one row, or once for the whole array.
 */
#ifndef HC_LEARN_H
#define HC_LEARN_H

#include "ops/codec/blocks.h"

/* Bytes that one thread needs at blocks->learn_at; 0 if rows have no codebook. */
int64_t hc_learn_row_bytes(const hc_encoder *encoder);
/* If the format has codebooks of rows, writes those of the rows of x to `out`, from row x->first_row on. */
void hc_learn_rows(const hc_blocks *blocks, uint32_t isa, int thread, const hc_float_rows *x, const hc_components *out);
/* Fills encoder->state.shared if one codebook is for the whole array. */
hc_status hc_learn_tensor(hc_encoder *encoder, const hc_run *run, hc_error *error);

#endif
