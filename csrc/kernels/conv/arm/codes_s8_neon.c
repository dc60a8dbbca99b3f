/* Codes of 8 bits, 16 values at a time, as in codes_s8_avx512.c. */
#include "kernels/conv/codes_s8.h"

#include <arm_neon.h>
#include <string.h>

#define INLINE static inline __attribute__((always_inline))

enum { LANES = 4, STEP = 4 * LANES };

INLINE uint32x4_t magnitude_of(const float *x) { return vreinterpretq_u32_f32(vabsq_f32(vld1q_f32(x))); }

uint32_t hc_largest_f32_neon(const float *x, int64_t n, uint32_t so_far) {
    uint32x4_t most[4];
    for (int j = 0; j < 4; j++)
        most[j] = vdupq_n_u32(so_far);
    int64_t i = 0;
    for (; i + STEP <= n; i += STEP)
#pragma GCC unroll 4
        for (int j = 0; j < 4; j++)
            most[j] = vmaxq_u32(most[j], magnitude_of(x + i + j * LANES));
    for (int64_t at = i; at < n; at += LANES) {
        float last[LANES] = {0};
        memcpy(last, x + at, (size_t)(n - at < LANES ? n - at : LANES) * sizeof *x);
        most[0] = vmaxq_u32(most[0], magnitude_of(last));
    }
    return vmaxvq_u32(vmaxq_u32(vmaxq_u32(most[0], most[1]), vmaxq_u32(most[2], most[3])));
}

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

INLINE void put(const int32x4_t unit[4], int form, int64_t at, void *to) {
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

INLINE void codes(const float *x, int64_t n, float scale, const int form, void *to) {
    const float reciprocal = 1.0f / scale;
    const int zero = form == HC_PANEL_S16 ? 0 : ZERO;
    int64_t i = 0;
    for (; i + STEP <= n; i += STEP) {
        int32x4_t unit[4];
        if (__builtin_expect(units(x + i, reciprocal, zero, unit), 1))
            put(unit, form, i, to);
        else
            divided_codes(x + i, STEP, scale, form, i, to);
    }
    divided_codes(x + i, n - i, scale, form, i, to);
}

void hc_codes_s8_neon(const float *x, int64_t n, float scale, int form, void *to) {
    if (!inverts(scale))
        divided_codes(x, n, scale, form, 0, to);
    else if (form == HC_PANEL_S16)
        codes(x, n, scale, HC_PANEL_S16, to);
    else
        codes(x, n, scale, HC_PANEL_U8, to);
}
