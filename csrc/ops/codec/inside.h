/* Marks the values at which a gradient passes a rounding, while rows are rounded (hc.h: hc_inside). */
#ifndef HC_OPS_INSIDE_H
#define HC_OPS_INSIDE_H

#include "ops/codec/encoding.h"

/* Marks rows x->first_row .. x->first_row + x->rows - 1. thresholds: those of hc_blocks_load. */
void hc_inside_rows(const hc_inside *inside, const hc_encoder *encoder, const hc_run *run, const hc_float_rows *x,
                    const float *thresholds);

#endif
