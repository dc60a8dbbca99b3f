/* Dot products of rows without sdot. */
#include "kernels/kernel.h"

#include <arm_neon.h>

static inline int32x4_t dot(int32x4_t sum, int8x16_t a, int8x16_t b) {
    return vpadalq_s16(vpadalq_s16(sum, vmull_s8(vget_low_s8(a), vget_low_s8(b))), vmull_high_s8(a, b));
}

#include "kernels/rows/arm/rows_s8_arm.h"

void hc_rows_s8_neon(const hc_rows_s8_args *args) { rows_s8(args); }
