/* gemv_rows: 64 accumulators in 16 registers, in the order of x. A register of codes holds 4 words. */
#include "kernels/gemv/arm/gemv_arm.h"

enum { REGISTERS = 16 };

/* acc[i] += x * codes for 64 codes; register i holds positions 4 i .. 4 i + 3. */
INLINE void add_block(const uint8_t *codes, uint8x16x4_t planes, const hc_float8_f32x4 *float8, bool has_table,
                      const float *x, int bits, bool is_bfloat, uint8x16_t flips, float32x4_t zero,
                      float32x4_t acc[REGISTERS]) {
    for (int u = 0; u < REGISTERS && bits == 16; u++) {
        const uint16x4_t halves = vld1_u16((const uint16_t *)(const void *)(codes + 8 * u));
        const float32x4_t c =
            is_bfloat ? vreinterpretq_f32_u32(vshll_n_u16(halves, 16)) : vcvt_f32_f16(vreinterpret_f16_u16(halves));
        acc[u] = vfmaq_f32(acc[u], vld1q_f32(x + 4 * u), c);
    }
    if (bits == 16)
        return;
    const int parts = 16 / (32 / bits); /* registers of codes, of each of which all words have a code in acc[i] */
#pragma GCC unroll 16
    for (int u = 0; u < parts; u++) {
        const uint8x16_t bytes = vld1q_u8(codes + 16 * u);
        if (bits == 32) {
            acc[u] = vfmaq_f32(acc[u], vld1q_f32(x + 4 * u), vreinterpretq_f32_u8(bytes));
            continue;
        }
        const uint32x4_t loaded = vreinterpretq_u32_u8(bytes), words = vreinterpretq_u32_u8(veorq_u8(bytes, flips));
        const uint32x4_t special = float8 ? special_bytes(float8, loaded) : loaded;
        float32x4_t entry[8];
        if (has_table)
            entries(planes, loaded, entry);
#pragma GCC unroll 8
        for (int j = 0; j < 32 / bits; j++) {
            float32x4_t c;
            if (has_table) {
                c = entry[j];
            } else if (float8) {
                const uint32x4_t bit = vtstq_u32(special, vdupq_n_u32(1u << 8 * j));
                c = float8_f32x4(float8, loaded, j);
                c = vreinterpretq_f32_u32(vorrq_u32(vreinterpretq_u32_f32(c), vandq_u32(bit, vdupq_n_u32(0x7f800000))));
            } else {
                const uint32x4_t code = vshlq_u32(words, vdupq_n_s32(-j * bits));
                c = vsubq_f32(vcvtq_f32_u32(vandq_u32(code, vdupq_n_u32((1u << (bits & 15)) - 1))), zero);
            }
            acc[j * parts + u] = vfmaq_f32(acc[j * parts + u], vld1q_f32(x + 4 * (j * parts + u)), c);
        }
    }
}

/* The last columns, fewer than 64, by the definition, since no other accumulator may add a padded code. Then the sum of
 * all accumulators. */
static float finish(const hc_gemv_floats_args *args, int r, int64_t first, const float *x, float zero, float *sums) {
    for (int64_t k = 0; first + k < args->columns; k++) {
        const int64_t place = place_of(args->bits, k);
        sums[place] = fmaf(x[place], hc_gemv_code(args, r, first + k, zero), sums[place]);
    }
    return fold_places(args->bits, sums);
}

INLINE void gemv_rows(const hc_gemv_floats_args *args, int bits, bool has_table, bool is_float8) {
    const int n_vectors = args->n_vectors;
    const hc_float8_f32x4 float8 = make_float8(args);
    const uint8x16_t flips = vdupq_n_u8((uint8_t)(bits == 4 ? args->flip * 17 : args->flip));
    for (int i = 0; i < HC_GEMV_ROWS * n_vectors; i++) {
        const int r = i / n_vectors, v = i % n_vectors;
        const float zero = args->zeros[r] ? args->zeros[r][0] : args->zero;
        const uint8x16x4_t planes = has_table ? vld4q_u8((const uint8_t *)args->table[r]) : (uint8x16x4_t){0};
        const float *x = args->x + v * 64;
        float32x4_t acc[REGISTERS];
#pragma GCC unroll 16
        for (int j = 0; j < REGISTERS; j++)
            acc[j] = vdupq_n_f32(0);
        int64_t k = 0;
        for (; k + 64 <= args->columns; k += 64, x += 64 * n_vectors) {
            for (int64_t line = 0; line < 8 * bits; line += 64)
                __builtin_prefetch((const char *)args->next[r] + k * bits / 8 + line, 0, 2);
            add_block(args->codes[r] + k * bits / 8, planes, is_float8 ? &float8 : NULL, has_table, x, bits,
                      args->exponent_bits == 8, flips, vdupq_n_f32(zero), acc);
        }
        float sums[64];
#pragma GCC unroll 16
        for (int j = 0; j < REGISTERS; j++)
            vst1q_f32(sums + 4 * j, acc[j]);
        args->out[i] = finish(args, r, k, x, zero, sums);
    }
}

void hc_gemv_rows_neon(const hc_gemv_floats_args *args) {
    if (args->bits == 32)
        gemv_rows(args, 32, false, false);
    else if (args->bits == 16)
        gemv_rows(args, 16, false, false);
    else if (args->bits == 8)
        args->exponent_bits ? gemv_rows(args, 8, false, true) : gemv_rows(args, 8, false, false);
    else
        args->table[0] ? gemv_rows(args, 4, true, false) : gemv_rows(args, 4, false, false);
}
