/* The pass of formats that need the largest magnitude of the whole array. */
#ifndef HC_OBSERVE_ROWS_H
#define HC_OBSERVE_ROWS_H

#include "formats/simd/simd.h"

static inline int64_t observe_maximum(const hc_format *format, const hc_geometry *geometry, int pass,
                                      const hc_float_rows *x, const float *thresholds, hc_encode_state *state) {
    (void)format, (void)pass;
    if (x->dtype != HC_F32 || thresholds)
        return HC_DECLINED;
    for (int64_t i = 0; i < x->rows; i++) {
        const float *from = (const float *)x->data + i * x->row_stride;
        const float maximum = simd_maximum(from, geometry->padded, HC_ABSOLUTE);
        if ((hc_f32_bits(maximum) & 0x7f800000) == 0x7f800000)
            return x->first_row + i;
        state->maximum = state->maximum > maximum ? state->maximum : maximum;
    }
    return HC_DONE;
}

#endif
