/* hc_attend_neon and hc_attend_codes_neon: kernels/layers/layers.h. */
#define HC_FLOATS 4
#define HC_ROWS 3
#include "kernels/layers/sums.h"

#include "kernels/kernel.h"

#include <arm_neon.h>

/* Adds lanes i and i + 2 of two keys. */
static inline float32x4_t fold_two(hc_floats a, hc_floats b) {
    const float64x2_t one = vreinterpretq_f64_f32((float32x4_t)a), other = vreinterpretq_f64_f32((float32x4_t)b);
    return vaddq_f32(vreinterpretq_f32_f64(vzip1q_f64(one, other)), vreinterpretq_f32_f64(vzip2q_f64(one, other)));
}

static inline hc_floats hc_fold(const hc_floats *keys) {
    return (hc_floats)vpaddq_f32(fold_two(keys[0], keys[1]), fold_two(keys[2], keys[3]));
}

static inline void hc_code_floats(const int8_t *codes, hc_floats *values) {
    const int8x16_t bytes = vld1q_s8(codes);
    const int16x8_t low = vmovl_s8(vget_low_s8(bytes)), high = vmovl_high_s8(bytes);
    values[0] = (hc_floats)vcvtq_f32_s32(vmovl_s16(vget_low_s16(low)));
    values[1] = (hc_floats)vcvtq_f32_s32(vmovl_high_s16(low));
    values[2] = (hc_floats)vcvtq_f32_s32(vmovl_s16(vget_low_s16(high)));
    values[3] = (hc_floats)vcvtq_f32_s32(vmovl_high_s16(high));
}

#include "kernels/layers/attend.h"

void hc_attend_neon(const hc_attend *some) { hc_attend_body(some, false, false); }

void hc_attend_codes_neon(const hc_attend *some) { hc_attend_body(some, some->k.codes != NULL, some->v.codes != NULL); }
