/* hc_gemv_groups_neon: 4 groups in lanes, the four quarters of 16 one after the other; the chains of 4 rows are interleaved. */
#include "kernels/gemv/arm/gemv_arm.h"

enum { QUARTERS = 16 / LANES };

/* How a code becomes c: two's complement, the same times a power of two, an integer less a zero point, an entry of a
 * table, a float of 8 bits, a float32. */
typedef enum { CODES_SIGNED, CODES_FRACTION, CODES_ZERO, CODES_TABLE, CODES_FLOAT8, CODES_FLOATS } hc_code_kind;

/* Code j of each word. */
INLINE float32x4_t code_f32x4(const hc_gemv_floats_args *args, const hc_float8_f32x4 *float8, uint32x4_t words,
                              float32x4_t zero, int bits, int j, hc_code_kind kind) {
    if (kind == CODES_FLOAT8)
        return float8_f32x4(float8, words, j);
    if (kind == CODES_FLOATS)
        return vreinterpretq_f32_u32(words);
    const uint32x4_t top = vshlq_u32(words, vdupq_n_s32(32 - bits * (j + 1)));
    const int32x4_t down = vdupq_n_s32(bits - 32);
    if (kind == CODES_ZERO)
        return vsubq_f32(vcvtq_f32_u32(vshlq_u32(top, down)), zero);
    const float32x4_t code = vcvtq_f32_s32(vshlq_s32(vreinterpretq_s32_u32(top), down));
    return kind == CODES_FRACTION ? vmulq_n_f32(code, args->unit) : code;
}

/* Words [first, first + n) of at most 4 groups, n 1 or 4: [group][word] -> [word][group]. */
INLINE void load_words(const uint8_t *codes, int64_t words, int64_t first, int n, int64_t groups, uint32x4_t *out) {
    uint32_t lane[LANES][LANES] = {{0}};
    float32x4_t row[LANES];
    if (n == 1) {
        for (int64_t i = 0; i < groups; i++)
            memcpy(&lane[0][i], codes + 4 * (i * words + first), sizeof lane[0][0]);
        out[0] = vld1q_u32(lane[0]);
        return;
    }
    for (int64_t i = 0; i < LANES; i++)
        row[i] = i < groups ? vreinterpretq_f32_u8(vld1q_u8(codes + 4 * (i * words + first))) : vdupq_n_f32(0);
    lanes_transpose(row);
    for (int i = 0; i < LANES; i++)
        out[i] = vreinterpretq_u32_f32(row[i]);
}

INLINE float32x4_t load_lanes(const float *from, int64_t n) {
    float lane[LANES] = {0};
    if (n == LANES)
        return vld1q_f32(from);
    memcpy(lane, from, (size_t)n * sizeof *lane);
    return vld1q_f32(lane);
}

/* Scales g .. g + n - 1 as float32, n at most 4. */
INLINE float32x4_t load_scales(const hc_gemv_floats_args *args, int r, int64_t g, int64_t n) {
    const uint8_t *from = args->scales[r] + g * args->scale_bits / 8;
    if (args->scale_bits == 32) {
        float lane[LANES] = {0};
        memcpy(lane, from, (size_t)n * sizeof *lane);
        return vld1q_f32(lane);
    }
    uint64_t bits = 0;
    memcpy(&bits, from, (size_t)((n * args->scale_bits + 7) / 8));
    if (args->scale_bits == 16)
        return vcvt_f32_f16(vreinterpret_f16_u64(vcreate_u64(bits)));
    static const int32_t SHIFTS[LANES] = {0, -4, -8, -12};
    const uint32x4_t code = vshlq_u32(vdupq_n_u32((uint32_t)bits), vld1q_s32(SHIFTS));
    return vcvtq_f32_u32(vandq_u32(code, vdupq_n_u32(15)));
}

INLINE void add_word(const hc_gemv_floats_args *args, const hc_float8_f32x4 *float8, const uint32x4_t words[],
                     const float32x4_t zero[], const float *x, float32x4_t p[], int bits, int n_vectors,
                     hc_code_kind kind) {
    if (kind == CODES_TABLE) {
        for (int r = 0; r < HC_GEMV_ROWS; r++) {
            float32x4_t c[8];
            entries(vld4q_u8((const uint8_t *)args->table[r]), words[r], c);
#pragma GCC unroll 8
            for (int j = 0; j < 8; j++)
                for (int v = 0; v < n_vectors; v++)
                    p[r * n_vectors + v] =
                        vfmaq_f32(p[r * n_vectors + v], vld1q_f32(x + (j * n_vectors + v) * 16), c[j]);
        }
        return;
    }
#pragma GCC unroll 8
    for (int j = 0; j < 32 / bits; j++)
#pragma GCC unroll 4
        for (int r = 0; r < HC_GEMV_ROWS; r++) {
            const float32x4_t c = code_f32x4(args, float8, words[r], zero[r], bits, j, kind);
#pragma GCC unroll 4
            for (int v = 0; v < n_vectors; v++)
                p[r * n_vectors + v] = vfmaq_f32(p[r * n_vectors + v], vld1q_f32(x + (j * n_vectors + v) * 16), c);
        }
}

/* Groups g .. g + groups - 1, at most 4; sums: of each row and vector. */
INLINE void four_groups(const hc_gemv_floats_args *args, const hc_float8_f32x4 *float8, int64_t g, int64_t groups,
                        int bits, int n_vectors, hc_code_kind kind, float32x4_t *sums[]) {
    const uint8x16_t flips = vdupq_n_u8((uint8_t)(bits == 4 ? args->flip * 17 : args->flip));
    const int64_t words = args->group * bits / 32, x_step = 32 / bits * n_vectors * 16, place = g * words * 4;
    const bool has_tail = (g + groups) * args->group > args->columns;
    const float *x = args->x + g / 16 * words * x_step + g % 16;
    float32x4_t p[HC_GEMV_ROWS * HC_GEMV_VECTORS], zero[HC_GEMV_ROWS];
    uint32x4_t special[HC_GEMV_ROWS];
    for (int r = 0; r < HC_GEMV_ROWS; r++) {
        special[r] = vdupq_n_u32(0);
        for (int64_t line = 0; line < words * 16; line += 64)
            __builtin_prefetch((const char *)args->next[r] + place + line, 0, 2);
        zero[r] = args->zeros[r] ? load_lanes(args->zeros[r] + g, groups) : vdupq_n_f32(args->zero);
    }
#pragma GCC unroll 16
    for (int i = 0; i < HC_GEMV_ROWS * n_vectors; i++)
        p[i] = vdupq_n_f32(0);
    const int n = words % LANES == 0 ? LANES : 1;
    for (int64_t first = 0; first < words; first += n) {
        uint32x4_t transposed[HC_GEMV_ROWS][LANES], word[HC_GEMV_ROWS];
        for (int r = 0; r < HC_GEMV_ROWS; r++)
            if (n == 1)
                load_words(args->codes[r] + place, words, first, 1, groups, transposed[r]);
            else
                load_words(args->codes[r] + place, words, first, LANES, groups, transposed[r]);
        for (int h = 0; h < n; h++) {
            for (int r = 0; r < HC_GEMV_ROWS; r++) {
                word[r] = transposed[r][h];
                if (kind == CODES_FLOAT8)
                    special[r] = vorrq_u32(special[r], special_bytes(float8, word[r]));
                if (kind == CODES_ZERO)
                    word[r] = vreinterpretq_u32_u8(veorq_u8(vreinterpretq_u8_u32(word[r]), flips));
            }
            add_word(args, float8, word, zero, x + (first + h) * x_step, p, bits, n_vectors, kind);
        }
    }
    for (int r = 0; r < HC_GEMV_ROWS; r++) {
        const float32x4_t scale = load_scales(args, r, g, groups);
        unsigned by_definition = has_tail ? 1u << (groups - 1) : 0;
        if (kind == CODES_FLOAT8 && vmaxvq_u32(special[r]))
            by_definition |= (1u << groups) - 1;
        for (int v = 0; v < n_vectors; v++) {
            const int i = r * n_vectors + v;
            if (by_definition) {
                float chains[LANES];
                vst1q_f32(chains, p[i]);
                for (unsigned left = by_definition; left; left &= left - 1) {
                    const int64_t lane = (int64_t)__builtin_ctz(left);
                    chains[lane] = hc_gemv_chain(args, r, v, g + lane);
                }
                p[i] = vld1q_f32(chains);
            }
            float32x4_t *sum = sums[i] + g % 16 / LANES;
            const float32x4_t more = vfmaq_f32(*sum, scale, p[i]);
            if (groups == LANES) {
                *sum = more;
                continue;
            }
            float old[LANES], lane[LANES]; /* lanes without a group are not changed */
            vst1q_f32(old, *sum);
            vst1q_f32(lane, more);
            memcpy(old, lane, (size_t)groups * sizeof *old);
            *sum = vld1q_f32(old);
        }
    }
}

INLINE void gemv_groups(const hc_gemv_floats_args *args, int bits, int n_vectors, hc_code_kind kind) {
    const hc_float8_f32x4 float8 = make_float8(args);
    float32x4_t acc[HC_GEMV_ROWS * HC_GEMV_VECTORS][QUARTERS], *sums[HC_GEMV_ROWS * HC_GEMV_VECTORS];
    for (int i = 0; i < HC_GEMV_ROWS * n_vectors; i++) {
        sums[i] = acc[i];
        for (int q = 0; q < QUARTERS; q++)
            acc[i][q] = vdupq_n_f32(0);
    }
    for (int64_t g = 0; g < args->groups; g += LANES)
        four_groups(args, &float8, g, hc_min(args->groups - g, LANES), bits, n_vectors, kind, sums);
    for (int i = 0; i < HC_GEMV_ROWS * n_vectors; i++) {
        const float32x4_t a = vaddq_f32(vaddq_f32(acc[i][0], acc[i][2]), vaddq_f32(acc[i][1], acc[i][3]));
        const float32x2_t b = vadd_f32(vget_low_f32(a), vget_high_f32(a));
        args->out[i] = vget_lane_f32(b, 0) + vget_lane_f32(b, 1);
    }
}

#include "kernels/gemv/gemv_groups.h"

HC_GEMV_GROUPS(neon)
