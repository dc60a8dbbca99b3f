/* peak_shuffle in plain C, a byte an instruction: kernels/peak/peak.h. */
#include "kernels/peak/peak.h"

#include <string.h>

int64_t hc_peak_shuffle_scalar(int64_t steps, void *state) {
    uint8_t *const chain = state;
    for (int64_t step = 0; step < steps; step++)
        for (int i = 0; i < HC_PEAK_CHAINS; i++) {
            uint8_t x[16];
            memcpy(x, chain + 16 * i, sizeof x);
            for (int place = 0; place < 16; place++)
                chain[16 * i + place] = x[(7 * place + 3) % 16];
        }
    return steps > 0 ? HC_PEAK_CHAINS * 16 : 0;
}
