/* Planes of pairs of codes, 4 pixels in lanes, 6 filters by 2 pairs of registers: hc_planes_s16_neon;
 * kernels/conv/conv.h. The products of a pair are added when all sums are known. */
#include "base/lanes/neon.h"
#include "kernels/kernel.h"

#include <arm_neon.h>

enum { SUMS = 12 };
typedef int16x8_t vector;
typedef struct {
    int32x4_t low, high; /* pixels 0 and 1, pixels 2 and 3 */
} sums;

static inline vector load(const int32_t *x) { return vreinterpretq_s16_s32(vld1q_s32(x)); }
static inline vector every(int32_t pair) { return vreinterpretq_s16_s32(vdupq_n_s32(pair)); }
static inline sums none(void) { return (sums){vdupq_n_s32(0), vdupq_n_s32(0)}; }
static inline sums dot(sums sum, vector x, vector w) {
    sum.low = vmlal_s16(sum.low, vget_low_s16(x), vget_low_s16(w));
    sum.high = vmlal_high_s16(sum.high, x, w);
    return sum;
}
static inline lanes floats_of(sums sum, double scale) {
    const int32x4_t all = vpaddq_s32(sum.low, sum.high);
    const float64x2_t low = vcvtq_f64_s64(vmovl_s32(vget_low_s32(all))), high = vcvtq_f64_s64(vmovl_high_s32(all));
    return vcvt_high_f32_f64(vcvt_f32_f64(vmulq_n_f64(low, scale)), vmulq_n_f64(high, scale));
}

#include "kernels/conv/planes/planes_s16.h"

HC_PLANES_S16(neon)
