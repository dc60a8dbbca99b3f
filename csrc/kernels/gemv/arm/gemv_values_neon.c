/* gemv_values: gemv_rows_neon.c with values that are computed from codes, scales and minima. Several vectors share the
 * values: fewer registers at a time, so that their sums stay in registers.
 */
#include "kernels/gemv/arm/gemv_arm.h"

enum { REGISTERS = 16 };

/* How the groups of 64 codes follow each other: `step` groups after `columns` columns. */
typedef struct {
    uint8x16_t place[2]; /* 4 bits: which of four groups the words 4 i .. 4 i + 3 of 64 codes have, byte by byte */
    int shift;           /* 8 bits: log2 of the registers of a group */
    int64_t step, columns;
} group_steps;

INLINE group_steps steps_of(int64_t group) {
    const bool is_short = group == 16 || group == 32;
    const int log2 = is_short ? __builtin_ctz((unsigned)group) : 6;
    group_steps steps = {
        .shift = log2 - 2, .step = is_short ? 64 / group : 1, .columns = is_short ? 64 : hc_round_up(group, 64)};
    for (int i = 0; i < 2; i++) {
        uint8_t place[16];
        for (int byte = 0; byte < 16; byte++)
            place[byte] = (uint8_t)(((4 * i + byte / 4) >> (log2 - 3)) * 4 + byte % 4);
        steps.place[i] = vld1q_u8(place);
    }
    return steps;
}

INLINE float32x4_t numbers_of(const float *numbers, uint8x16_t place) {
    return vreinterpretq_f32_u8(vqtbl1q_u8(vreinterpretq_u8_f32(vld1q_f32(numbers)), place));
}

INLINE void add_products(float32x4_t c, const float *x, int n_vectors, float32x4_t *acc) {
#pragma GCC unroll 4
    for (int v = 0; v < n_vectors; v++)
        acc[v] = vfmaq_f32(acc[v], vld1q_f32(x + v * 64), c);
}

/* acc[i * n_vectors + v] += x_v * values for registers [first, first + n) of 64 codes of 4 bits; register i holds nibble
 * i / 2 of words i % 2 * 4 .. i % 2 * 4 + 3. */
INLINE void add_nibbles(const uint8_t *codes, const float *scales, const float *minima, const group_steps *steps,
                        const float *x, int first, int n, int n_vectors, float32x4_t *acc) {
    const uint32x4_t words[2] = {vreinterpretq_u32_u8(vld1q_u8(codes)), vreinterpretq_u32_u8(vld1q_u8(codes + 16))};
    const float32x4_t scale[2] = {numbers_of(scales, steps->place[0]), numbers_of(scales, steps->place[1])};
    const float32x4_t minimum[2] = {numbers_of(minima, steps->place[0]), numbers_of(minima, steps->place[1])};
#pragma GCC unroll 16
    for (int i = first; i < first + n; i++) {
        const float32x4_t code = vcvtq_f32_u32(vandq_u32(words[i % 2] >> (i / 2 * 4), vdupq_n_u32(15)));
        add_products(vfmaq_f32(minimum[i % 2], scale[i % 2], code), x + 4 * i, n_vectors,
                     acc + (i - first) * n_vectors);
    }
}

/* The same for codes of 8 bits; register i holds codes 4 i .. 4 i + 3. */
INLINE void add_bytes(const uint8_t *codes, const float *scales, const float *minima, const group_steps *steps,
                      const float *x, int first, int n, int n_vectors, float32x4_t *acc) {
#pragma GCC unroll 4
    for (int i = first; i < first + n; i += 4) {
        const float32x4_t scale = vld1q_dup_f32(scales + (i >> steps->shift));
        const float32x4_t minimum = vld1q_dup_f32(minima + (i >> steps->shift));
        const uint8x16_t bytes = vld1q_u8(codes + 4 * i);
        const uint16x8_t half[2] = {vmovl_u8(vget_low_u8(bytes)), vmovl_high_u8(bytes)};
#pragma GCC unroll 4
        for (int j = 0; j < 4; j++) {
            const uint32x4_t code = j % 2 ? vmovl_high_u16(half[j / 2]) : vmovl_u16(vget_low_u16(half[j / 2]));
            add_products(vfmaq_f32(minimum, scale, vcvtq_f32_u32(code)), x + 4 * (i + j), n_vectors,
                         acc + (i + j - first) * n_vectors);
        }
    }
}

/* The sums of registers [first, first + n) over whole blocks of 64 codes. */
INLINE void add_blocks(const hc_gemv_floats_args *args, int r, int bits, int n_vectors, int first, int n,
                       float sums[HC_GEMV_VECTORS][64]) {
    const group_steps steps = steps_of(args->group);
    const float *scales = (const float *)(const void *)args->scales[r], *minima = args->minima[r], *x = args->x;
    float32x4_t acc[REGISTERS];
#pragma GCC unroll 16
    for (int i = 0; i < REGISTERS; i++)
        acc[i] = vdupq_n_f32(0);
    for (int64_t k = 0, next = steps.columns; k + 64 <= args->columns; k += 64, x += 64 * n_vectors) {
        const uint8_t *codes = args->codes[r] + k * bits / 8;
        if (first == 0)
            __builtin_prefetch((const char *)args->next[r] + k * bits / 8, 0, 2);
        if (k == next) {
            next += steps.columns;
            scales += steps.step;
            minima += steps.step;
        }
        bits == 4 ? add_nibbles(codes, scales, minima, &steps, x, first, n, n_vectors, acc)
                  : add_bytes(codes, scales, minima, &steps, x, first, n, n_vectors, acc);
    }
#pragma GCC unroll 16
    for (int i = 0; i < n; i++)
#pragma GCC unroll 4
        for (int v = 0; v < n_vectors; v++)
            vst1q_f32(sums[v] + 4 * (first + i), acc[i * n_vectors + v]);
}

/* The last columns, fewer than 64, by the definition, since no other sum may add a padded code. */
static void add_last(const hc_gemv_floats_args *args, int r, int v, float sums[64]) {
    const int bits = args->bits == 4 ? 4 : 32;
    const int64_t whole = args->columns / 64 * 64;
    const float *minima = args->minima[r], *x = args->x + whole * args->n_vectors + v * 64;
    for (int64_t k = whole; k < args->columns; k++) {
        const int64_t place = place_of(bits, k - whole), g = k / args->group;
        const int code = bits == 4 ? args->codes[r][k / 2] >> k % 2 * 4 & 15 : args->codes[r][k];
        sums[place] = fmaf(x[place], fmaf(hc_load_f32(args->scales[r] + 4 * g), (float)code, minima[g]), sums[place]);
    }
}

INLINE void gemv_values(const hc_gemv_floats_args *args, int bits, int n_vectors) {
    for (int r = 0; r < HC_GEMV_ROWS; r++) {
        float sums[HC_GEMV_VECTORS][64];
        for (int first = 0; first < REGISTERS; first += REGISTERS / n_vectors)
            add_blocks(args, r, bits, n_vectors, first, REGISTERS / n_vectors, sums);
        for (int v = 0; v < n_vectors; v++) {
            add_last(args, r, v, sums[v]);
            args->out[r * n_vectors + v] = fold_places(bits == 4 ? 4 : 32, sums[v]);
        }
    }
}

INLINE void of_vectors(const hc_gemv_floats_args *args, int bits) {
    if (args->n_vectors == 1)
        gemv_values(args, bits, 1);
    else if (args->n_vectors == 2)
        gemv_values(args, bits, 2);
    else
        gemv_values(args, bits, 4);
}

void hc_gemv_values_neon(const hc_gemv_floats_args *args) {
    args->bits == 4 ? of_vectors(args, 4) : of_vectors(args, 8);
}
