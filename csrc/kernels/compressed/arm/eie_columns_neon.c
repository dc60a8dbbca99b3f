/* hc_eie_columns_neon: kernels/compressed/compressed.h. */
#include "kernels/kernel.h"

#include <arm_neon.h>
#include <math.h>

static inline __attribute__((always_inline)) void add(float value, const float *x, int lanes, float *sums) {
    if (lanes == 1) { /* not 0: such columns are left out */
        *sums = fmaf(value, *x, *sums);
        return;
    }
#pragma GCC unroll 2
    for (int half = 0; half < 8; half += 4) {
        const float32x4_t factors = vld1q_f32(x + half), before = vld1q_f32(sums + half);
        const float32x4_t after = vfmaq_n_f32(before, factors, value);
        vst1q_f32(sums + half, vbslq_f32(vceqzq_f32(factors), before, after));
    }
}

#include "kernels/compressed/eie_copied.h"

HC_EIE_COLUMNS(neon)
