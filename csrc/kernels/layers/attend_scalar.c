/* hc_attend_scalar: kernels/layers/layers.h. */
#define HC_FLOATS 4
#define HC_ROWS 1
#include "kernels/layers/sums.h"

#include "kernels/kernel.h"

static inline hc_floats hc_fold(const hc_floats *keys) {
    hc_floats sums;
    for (int j = 0; j < HC_FLOATS; j++)
        sums[j] = (keys[j][0] + keys[j][2]) + (keys[j][1] + keys[j][3]);
    return sums;
}

static inline void hc_code_floats(const int8_t *codes, hc_floats *values) {
    for (int i = 0; i < HC_SUMS / HC_FLOATS; i++, codes += HC_FLOATS)
        values[i] = (hc_floats){codes[0], codes[1], codes[2], codes[3]};
}

#include "kernels/layers/attend.h"

void hc_attend_scalar(const hc_attend *some) { hc_attend_body(some, false, false); }
