/* Where a gradient passes a rounding, noted while rows are rounded (hc.h: hc_inside). */
#ifndef HC_OPS_INSIDE_H
#define HC_OPS_INSIDE_H

#include "ops/codec/encoding.h"

/* Rows x->first_row ..; thresholds as hc_blocks_load has them. */
void hc_inside_rows(const hc_inside *inside, const hc_encoder *encoder, const hc_run *run, const hc_float_rows *x,
                    const float *thresholds);

#endif
