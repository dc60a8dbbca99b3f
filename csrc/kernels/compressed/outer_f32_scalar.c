/* Definition of products of lists of activations with rows of weights; kernels/compressed/compressed.h. */
#include "kernels/kernel.h"

#include <math.h>

void hc_outer_f32_scalar(int64_t count, const int32_t *starts, int64_t step, const float *values, const uint8_t *at,
                         const float *panel, int lanes, bool guarded, float *to) {
    for (int64_t i = 0; i < count; i++, starts += step, to += lanes)
        for (int32_t t = starts[0]; t < starts[1]; t++) {
            const float *weights = panel + at[t] * lanes;
            for (int j = 0; j < lanes; j++)
                if (!guarded || weights[j] != 0.0f)
                    to[j] = fmaf(values[t], weights[j], to[j]);
        }
}
