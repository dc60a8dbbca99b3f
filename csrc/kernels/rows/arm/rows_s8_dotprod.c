/* Dot products of rows by sdot. */
#include "kernels/kernel.h"

#include <arm_neon.h>

static inline int32x4_t dot(int32x4_t sum, int8x16_t a, int8x16_t b) { return vdotq_s32(sum, a, b); }

#include "kernels/rows/arm/rows_s8_arm.h"

void hc_rows_s8_dotprod(const hc_rows_s8_args *args) { rows_s8(args); }
