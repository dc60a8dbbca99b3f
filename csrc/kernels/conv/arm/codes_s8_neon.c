/* hc_codes_s8_neon, hc_code_pairs_s8_neon and hc_largest_f32_neon: codes of 8 bits, 16 values at a time, as in
 * codes_s8_avx512.c. */
#include "kernels/conv/codes_s8.h"

#include <arm_neon.h>
#include <string.h>

#define INLINE static inline __attribute__((always_inline))

enum { LANES = 4, STEP = 4 * LANES };

typedef int32x4_t words;

INLINE words magnitude_of(const float *x) { return vreinterpretq_s32_f32(vabsq_f32(vld1q_f32(x))); }

INLINE words every(uint32_t value) { return vreinterpretq_s32_u32(vdupq_n_u32(value)); }
INLINE words larger(words a, words b) {
    return vreinterpretq_s32_u32(vmaxq_u32(vreinterpretq_u32_s32(a), vreinterpretq_u32_s32(b)));
}
INLINE uint32_t largest_of(words all) { return vmaxvq_u32(vreinterpretq_u32_s32(all)); }

/* Codes of STEP values plus `zero`; false if they must be computed by division. */
INLINE bool units(const float *x, float reciprocal, int zero, int32x4_t unit[4]) {
    const float32x4_t magic = vdupq_n_f32(0x1.8p23f + (float)zero);
    float32x4_t worst = vdupq_n_f32(0);
#pragma GCC unroll 4
    for (int j = 0; j < 4; j++) {
        const float32x4_t value = vld1q_f32(x + j * LANES), sum = vfmaq_n_f32(magic, value, reciprocal);
        worst = vmaxq_f32(worst, vabsq_f32(vfmsq_f32(vsubq_f32(sum, magic), value, vdupq_n_f32(reciprocal))));
        unit[j] = vsubq_s32(vreinterpretq_s32_f32(sum), vdupq_n_s32(0x4b400000));
    }
    return vmaxvq_f32(worst) <= SURE;
}

INLINE void put(const int32x4_t unit[4], const int form, float scale, int64_t at, void *to) {
    if (form == HC_PANEL_F32 || form == HC_CODES_ROUNDED) {
        for (int j = 0; j < 4; j++) {
            const int32x4_t code = vmaxq_s32(vminq_s32(unit[j], vdupq_n_s32(LARGEST)), vdupq_n_s32(-LARGEST));
            const float32x4_t value = vcvtq_f32_s32(code);
            vst1q_f32((float *)to + at + j * LANES, form == HC_CODES_ROUNDED ? vmulq_n_f32(value, scale) : value);
        }
        return;
    }
    const int16x8_t low = vqmovn_high_s32(vqmovn_s32(unit[0]), unit[1]);
    const int16x8_t high = vqmovn_high_s32(vqmovn_s32(unit[2]), unit[3]);
    if (form == HC_PANEL_S16) {
        const int16x8_t most = vdupq_n_s16(LARGEST), least = vdupq_n_s16(-LARGEST);
        vst1q_s16((int16_t *)to + at, vmaxq_s16(vminq_s16(low, most), least));
        vst1q_s16((int16_t *)to + at + 8, vmaxq_s16(vminq_s16(high, most), least));
        return;
    }
    const uint8x16_t bytes = vqmovun_high_s16(vqmovun_s16(low), high);
    vst1q_u8((uint8_t *)to + at, vmaxq_u8(bytes, vdupq_n_u8(ZERO - LARGEST)));
}

INLINE void put_pair(words low, words high, int32_t *to) {
    const int16x8_t pair = vtrn1q_s16(vreinterpretq_s16_s32(low), vreinterpretq_s16_s32(high));
    const int16x8_t cut = vmaxq_s16(vminq_s16(pair, vdupq_n_s16(LARGEST)), vdupq_n_s16(-LARGEST));
    vst1q_s32(to, vreinterpretq_s32_s16(cut));
}

#include "kernels/conv/codes_s8_units.h"

HC_CODES_S8(neon)
