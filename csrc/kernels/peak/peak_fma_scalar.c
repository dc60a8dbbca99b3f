/* peak_fma in plain C: kernels/peak/peak.h. */
#include "kernels/peak/peak.h"

#include <math.h>

int64_t hc_peak_fma_scalar(int64_t steps, void *state) {
    float *const chain = state;
    float x[HC_PEAK_CHAINS * 4];
    for (int i = 0; i < HC_PEAK_CHAINS * 4; i++)
        x[i] = chain[i];
    for (int64_t step = 0; step < steps; step++)
        for (int i = 0; i < HC_PEAK_CHAINS * 4; i++)
            x[i] = fmaf(x[i], -0.5f, 1.0f);
    for (int i = 0; i < HC_PEAK_CHAINS * 4; i++)
        chain[i] = x[i];
    return steps > 0 ? HC_PEAK_CHAINS * 4 * 2 : 0;
}
