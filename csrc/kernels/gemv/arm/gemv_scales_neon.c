/* gemv_scales. */
#include "kernels/gemv/arm/gemv_arm.h"

/* 4 numbers of one byte: e4m3fn has the bits of a float16 of 2^-8 times its value, except for its NaN. */
static float32x4_t load_bytes(const uint8_t *stored, int kind) {
    uint32_t four;
    memcpy(&four, stored, sizeof four);
    const uint16x4_t words = vget_low_u16(vmovl_u8(vreinterpret_u8_u32(vdup_n_u32(four))));
    const uint32x4_t codes = vmovl_u16(words), nan = vdupq_n_u32(0x7fc00000);
    if (kind == HC_SCALES_U8)
        return vcvtq_f32_u32(codes);
    if (kind == HC_SCALES_E8M0) {
        const uint32x4_t values = vbslq_u32(vceqzq_u32(codes), vdupq_n_u32(0x400000), vshlq_n_u32(codes, 23));
        return vreinterpretq_f32_u32(vbslq_u32(vceqq_u32(codes, vdupq_n_u32(255)), nan, values));
    }
    const uint16x4_t magnitude = vand_u16(words, vdup_n_u16(0x7f)), sign = vand_u16(words, vdup_n_u16(0x80));
    const uint16x4_t half = vorr_u16(vshl_n_u16(magnitude, 7), vshl_n_u16(sign, 8));
    const float32x4_t values = vmulq_n_f32(vcvt_f32_f16(vreinterpret_f16_u16(half)), 256);
    const uint32x4_t is_nan = vceqq_u32(vmovl_u16(magnitude), vdupq_n_u32(0x7f));
    return vbslq_f32(is_nan, vreinterpretq_f32_u32(nan), values);
}

void hc_gemv_scales_neon(const uint8_t *stored, int kind, float factor, int64_t n, float *out) {
    static const int32_t SHIFTS[4] = {0, -4, -8, -12};
    int64_t i = 0;
    for (; i + 4 <= n; i += 4) {
        float32x4_t value;
        if (kind == HC_SCALES_F16) {
            value = vcvt_f32_f16(vreinterpret_f16_u8(vld1_u8(stored + 2 * i)));
        } else if (kind != HC_SCALES_U4) {
            value = load_bytes(stored + i, kind);
        } else {
            uint16_t bits;
            memcpy(&bits, stored + i / 2, sizeof bits);
            const uint32x4_t codes = vshlq_u32(vdupq_n_u32(bits), vld1q_s32(SHIFTS));
            value = vcvtq_f32_u32(vandq_u32(codes, vdupq_n_u32(15)));
        }
        vst1q_f32(out + i, vmulq_n_f32(value, factor));
    }
    for (; i < n; i++)
        out[i] = factor * hc_gemv_scale(stored, kind, i);
}
