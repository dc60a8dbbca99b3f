/* The pass of formats that need the largest magnitude of the whole array. */
#ifndef HC_OBSERVE_ROWS_H
#define HC_OBSERVE_ROWS_H

#include "formats/simd/values.h"

static inline int64_t observe_maximum(const hc_format *format, const hc_geometry *geometry, int pass,
                                      const hc_float_rows *x, const float *thresholds, hc_encode_state *state) {
    (void)format, (void)pass;
    hc_floats floats;
    if (thresholds)
        return HC_DECLINED;
    init_floats(HC_NEAREST, &floats);
    for (int64_t i = 0; i < x->rows; i++) {
        const float maximum = values_maximum(row_values(x, i), geometry->padded, HC_ABSOLUTE, &floats);
        if (!is_finite(maximum))
            return x->first_row + i;
        state->maximum = state->maximum > maximum ? state->maximum : maximum;
    }
    return HC_DONE;
}

#endif
