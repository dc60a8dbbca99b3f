/* gemv_scaled, gemv_scaled_zeros and gemv_turned, 4 rows at a time. One or two lines of x: a register of sums per row and
 * line, added across lanes at the end of a segment. More lines: words of 4 rows are transposed once for all lines, so that
 * a lane is a row and a line has one register of sums. Zero points, and the 128 by which bytes are reduced, are multiples
 * of the sum of x over a segment.
 *
 * Included after gemv_integers_arm.h and the definition of four_words(sum, turned, kind, x): sum plus the products of 4
 * transposed registers with 16 bytes of x, and of 4 more with those 64 bytes further if codes are nibbles.
 */
#ifndef HC_GEMV_SCALED_ARM_H
#define HC_GEMV_SCALED_ARM_H

enum { ROWS = 4, STEP = 4, FEW = 2 }; /* rows and segments at a time; lines that are added across lanes */

typedef enum { FLOATS, ZEROS, INTEGERS } end_kind; /* gemv_scaled, gemv_scaled_zeros, gemv_turned */

/* The part that the rows of a quad share. */
typedef struct {
    const uint8_t *codes[ROWS], *scales[ROWS];
    const float *zeros[ROWS];
} row_group;

INLINE row_group group_of(const hc_gemv_scaled_args *args, int first) {
    row_group rows = {.zeros = {0}};
    for (int i = 0; i < ROWS; i++) {
        const int64_t row = hc_min(first + i, args->n_rows - 1);
        rows.codes[i] = args->codes + row * args->code_stride;
        rows.scales[i] = args->scales + row * args->scale_stride;
        if (args->zeros)
            rows.zeros[i] = args->zeros + row * args->ld_zeros;
    }
    return rows;
}

/* Scales of n segments from segment s on, one register per segment. */
INLINE void load_scales(int scale_bits, const row_group *rows, int64_t s, int64_t n, float32x4_t scales[STEP]) {
    for (int row = 0; row < ROWS; row++) {
        uint8_t copy[4 * STEP] = {0};
        const int64_t bytes = scale_bits / 8;
        const uint8_t *from = rows->scales[row] + bytes * s;
        if (n < STEP) {
            for (int64_t i = 0; i < n; i++)
                memcpy(copy + i * bytes, from + i * bytes, scale_bits == 16 ? 2 : 4);
            from = copy;
        }
        scales[row] =
            scale_bits == 16 ? vcvt_f32_f16(vreinterpret_f16_u8(vld1_u8(from))) : vreinterpretq_f32_u8(vld1q_u8(from));
    }
    lanes_transpose(scales);
}

/* A segment subtracts this for each unit of its sum of x. */
INLINE void load_zeros(const row_group *rows, int64_t s, int32_t reduced, int32x4_t zeros[STEP]) {
    float32x4_t stored[ROWS];
    for (int row = 0; row < ROWS; row++)
        stored[row] = vld1q_f32(rows->zeros[row] + s);
    lanes_transpose(stored);
    for (int i = 0; i < STEP; i++)
        zeros[i] = vsubq_s32(vcvtq_s32_f32(stored[i]), vdupq_n_s32(reduced));
}

/* acc plus a segment's product. */
INLINE int32x4_t end_segment(const hc_gemv_scaled_args *args, end_kind end, int64_t at, int32x4_t dots, int32x4_t zero,
                             float32x4_t scale, int32x4_t acc) {
    dots = vmlsq_n_s32(dots, zero, args->x_sums[at]);
    if (end == INTEGERS)
        return vmlaq_s32(acc, dots, vcvtq_s32_f32(scale));
    const float32x4_t both = vmulq_n_f32(scale, args->x_scales[at]);
    return vreinterpretq_s32_f32(vfmaq_f32(vreinterpretq_f32_s32(acc), both, vcvtq_f32_s32(dots)));
}

INLINE void keep_sums(int32x4_t sum, int64_t *to) {
    vst1q_s64(to, vaddw_s32(vld1q_s64(to), vget_low_s32(sum)));
    vst1q_s64(to + 2, vaddw_high_s32(vld1q_s64(to + 2), sum));
}

/* Rows [first, first + 4) of `lines` lines; n_lines is a constant if `across`. */
INLINE void four_rows(const hc_gemv_scaled_args *args, int first, code_kind kind, end_kind end, bool across,
                      int n_lines) {
    const row_group rows = group_of(args, first);
    const uint8x16_t form = load_form(kind, args->flip, args->table);
    const int32_t reduced = kind == BYTES ? 128 : 0;
    const int parts_of_segment = args->words / 4, n_sums = across ? ROWS : 1;
    int32x4_t acc[HC_GEMV_TURNED_LINES], zeros[STEP];
    float32x4_t scales[STEP];
    int64_t place = 0, held = 0;
    for (int i = 0; i < STEP; i++)
        zeros[i] = vdupq_n_s32(args->zero - reduced);
    for (int line = 0; line < n_lines; line++)
        acc[line] = vdupq_n_s32(0);
    for (int64_t s = 0; s < args->segments; s++) {
        int32x4_t sum[HC_GEMV_TURNED_LINES][ROWS];
        if (s % STEP == 0) {
            load_scales(end == INTEGERS ? 32 : args->scale_bits, &rows, s, hc_min(args->segments - s, STEP), scales);
            if (end == ZEROS)
                load_zeros(&rows, s, reduced, zeros);
        }
#pragma GCC unroll 2
        for (int line = 0; line < n_lines; line++)
#pragma GCC unroll 4
            for (int row = 0; row < n_sums; row++)
                sum[line][row] = vdupq_n_s32(0);
        for (int part = 0; part < parts_of_segment; part++, place += 16) {
            const int8_t *x = args->x + (kind <= TABLED ? place / BLOCK * 2 * BLOCK + place % BLOCK : place);
            int8x16_t codes[ROWS][2];
            if (across) {
#pragma GCC unroll 4
                for (int row = 0; row < ROWS; row++)
                    load_codes(rows.codes[row] + place, kind, form, codes[row]);
#pragma GCC unroll 2
                for (int line = 0; line < n_lines; line++)
#pragma GCC unroll 4
                    for (int row = 0; row < ROWS; row++)
                        sum[line][row] = add_codes(sum[line][row], codes[row], kind, x + line * args->x_bytes);
                continue;
            }
            float32x4_t words[ROWS];
#pragma GCC unroll 4
            for (int row = 0; row < ROWS; row++)
                words[row] = vreinterpretq_f32_u8(vld1q_u8(rows.codes[row] + place));
            lanes_transpose(words);
#pragma GCC unroll 4
            for (int word = 0; word < ROWS; word++)
                expand_codes(vreinterpretq_u8_f32(words[word]), kind, form, codes[word]);
            for (int line = 0; line < n_lines; line++)
                sum[line][0] = four_words(sum[line][0], codes, kind, x + line * args->x_bytes);
        }
#pragma GCC unroll 2
        for (int line = 0; line < n_lines; line++) {
            int32x4_t dots = sum[line][0];
            if (across)
                dots = vpaddq_s32(vpaddq_s32(sum[line][0], sum[line][1]), vpaddq_s32(sum[line][2], sum[line][3]));
            acc[line] =
                end_segment(args, end, line * args->ld_scales + s, dots, zeros[s % STEP], scales[s % STEP], acc[line]);
        }
        if (end == INTEGERS && ++held == args->most) {
            for (int line = 0; line < n_lines; line++) {
                keep_sums(acc[line], args->sums + 16 * line + first);
                acc[line] = vdupq_n_s32(0);
            }
            held = 0;
        }
    }
    for (int line = 0; line < n_lines; line++) {
        if (end == INTEGERS)
            keep_sums(acc[line], args->sums + 16 * line + first);
        else
            vst1q_f32(args->out + 16 * line + first, vreinterpretq_f32_s32(acc[line]));
    }
}

/* Each case is a function of its own: the time of a compiler grows faster than the length of a function. */
#define HC_ROWS_OF(name, kind, end)                                                                                    \
    static __attribute__((noinline)) void name(const hc_gemv_scaled_args *args) {                                      \
        for (int first = 0; first < 16; first += ROWS) {                                                               \
            args->n_lines == 1     ? four_rows(args, first, kind, end, true, 1)                                        \
            : args->n_lines == FEW ? four_rows(args, first, kind, end, true, FEW)                                      \
                                   : four_rows(args, first, kind, end, false, args->n_lines);                          \
        }                                                                                                              \
    }

#define HC_GEMV_SCALED(isa)                                                                                            \
    HC_ROWS_OF(scaled_tabled, TABLED, FLOATS)                                                                          \
    HC_ROWS_OF(scaled_nibbles, NIBBLES, FLOATS)                                                                        \
    HC_ROWS_OF(scaled_small, SMALL, FLOATS)                                                                            \
    HC_ROWS_OF(scaled_bytes, BYTES, FLOATS)                                                                            \
    HC_ROWS_OF(zeros_nibbles, NIBBLES, ZEROS)                                                                          \
    HC_ROWS_OF(zeros_bytes, BYTES, ZEROS)                                                                              \
    HC_ROWS_OF(turned_small, SMALL, INTEGERS)                                                                          \
    HC_ROWS_OF(turned_bytes, BYTES, INTEGERS)                                                                          \
    void hc_gemv_scaled_##isa(const hc_gemv_scaled_args *args) {                                                       \
        args->bits == 4 && args->table ? scaled_tabled(args)                                                           \
        : args->bits == 4              ? scaled_nibbles(args)                                                          \
        : args->is_small               ? scaled_small(args)                                                            \
                                       : scaled_bytes(args);                                                           \
    }                                                                                                                  \
    void hc_gemv_scaled_zeros_##isa(const hc_gemv_scaled_args *args) {                                                 \
        args->bits == 4 ? zeros_nibbles(args) : zeros_bytes(args);                                                     \
    }                                                                                                                  \
    void hc_gemv_turned_##isa(const hc_gemv_scaled_args *args) {                                                       \
        memset(args->sums, 0, (size_t)args->n_lines * 16 * sizeof *args->sums);                                        \
        args->is_small ? turned_small(args) : turned_bytes(args);                                                      \
    }

#endif
