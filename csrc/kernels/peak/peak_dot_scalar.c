/* peak_dot in plain C: kernels/peak/peak.h. */
#include "kernels/peak/peak.h"

int64_t hc_peak_dot_scalar(int64_t steps, void *state) {
    uint32_t *const chain = state;
    volatile uint8_t a[4] = {1, 2, 1, 2}; /* read anew each time: else the loop is one multiplication */
    const int32_t b[4] = {5, -6, 5, -6};
    uint32_t x[HC_PEAK_CHAINS * 4];
    for (int i = 0; i < HC_PEAK_CHAINS * 4; i++)
        x[i] = chain[i];
    for (int64_t step = 0; step < steps; step++) {
        for (int k = 0; k < 4; k++)
            for (int i = 0; i < HC_PEAK_CHAINS * 4; i++)
                x[i] += (uint32_t)(a[k] * b[k]);
    }
    for (int i = 0; i < HC_PEAK_CHAINS * 4; i++)
        chain[i] = x[i];
    return steps > 0 ? HC_PEAK_CHAINS * 4 * 8 : 0;
}
