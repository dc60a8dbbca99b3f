/* gemv_dots and gemv_folded for any dot of bytes: a register of codes holds 4 words, whose sums are its 4
 * lanes. Included after the definition of dot(sum, a, b), which adds the products of the 4 bytes of each word, |a| <=
 * 128. Bytes of 128 and more are reduced by 128, and 128 times the sum of x is added.
 */
#ifndef HC_GEMV_INTEGERS_ARM_H
#define HC_GEMV_INTEGERS_ARM_H

typedef enum { NIBBLES, TABLED, SMALL, BYTES } code_kind;
enum { BLOCK = 64, PARTS = BLOCK / 16 }; /* bytes of codes; registers of them */

/* Operands that turn codes into bytes. */
INLINE uint8x16_t load_form(code_kind kind, int flip, const uint8_t *table) {
    return kind == TABLED ? vld1q_u8(table)
                          : vdupq_n_u8((uint8_t)(kind == NIBBLES ? flip * 17
                                                 : kind == BYTES ? flip ^ 0x80
                                                                 : flip));
}

/* Expands 16 bytes of codes for the product with x: the lower nibbles, then the upper nibbles; or the bytes. */
INLINE void expand_codes(uint8x16_t stored, code_kind kind, uint8x16_t form, int8x16_t parts[2]) {
    const uint8x16_t low = vdupq_n_u8(15);
    if (kind == TABLED) {
        parts[0] = vreinterpretq_s8_u8(vqtbl1q_u8(form, vandq_u8(stored, low)));
        parts[1] = vreinterpretq_s8_u8(vqtbl1q_u8(form, vshrq_n_u8(stored, 4)));
        return;
    }
    const uint8x16_t u = veorq_u8(stored, form);
    parts[0] = vreinterpretq_s8_u8(kind == NIBBLES ? vandq_u8(u, low) : u);
    parts[1] = vreinterpretq_s8_u8(vshrq_n_u8(u, 4));
}

INLINE void load_codes(const uint8_t *codes, code_kind kind, uint8x16_t form, int8x16_t parts[2]) {
    expand_codes(vld1q_u8(codes), kind, form, parts);
}

/* sum, plus the correction for reduced bytes */
INLINE int32x4_t start_of(int32x4_t sum, code_kind kind, const int8_t *x) {
    return kind == BYTES ? vaddq_s32(sum, vshlq_n_s32(dot(vdupq_n_s32(0), vdupq_n_s8(1), vld1q_s8(x)), 7)) : sum;
}

/* x of upper nibbles is 64 bytes further. */
INLINE int32x4_t add_codes(int32x4_t sum, const int8x16_t parts[2], code_kind kind, const int8_t *x) {
    sum = dot(sum, parts[0], vld1q_s8(x));
    return kind <= TABLED ? dot(sum, parts[1], vld1q_s8(x + BLOCK)) : sum;
}

/* A block of codes, of which the row has `left` bytes. */
INLINE void load_block(const uint8_t *codes, int64_t left, code_kind kind, uint8x16_t form, int8x16_t parts[][2]) {
    uint8_t copy[BLOCK];
    if (left < BLOCK) {
        memset(copy, 0, sizeof copy);
        if (left > 0)
            memcpy(copy, codes, (size_t)left);
        codes = copy;
    }
#pragma GCC unroll 4
    for (int i = 0; i < PARTS; i++)
        load_codes(codes + 16 * i, kind, form, parts[i]);
}

/* --- gemv_dots --- */

/* Stores the sums of 1, 2, 4 or 8 neighbours of 16 words. */
INLINE void put_words(const int32x4_t word[PARTS], int words, int32_t *dots) {
    const int32x4_t low = vpaddq_s32(word[0], word[1]), high = vpaddq_s32(word[2], word[3]);
    const int32x4_t fours = vpaddq_s32(low, high);
    if (words == 1)
#pragma GCC unroll 4
        for (int i = 0; i < PARTS; i++)
            vst1q_s32(dots + 4 * i, word[i]);
    else if (words == 2)
        vst1q_s32(dots, low), vst1q_s32(dots + 4, high);
    else if (words == 4)
        vst1q_s32(dots, fours);
    else
        vst1_s32(dots, vpadd_s32(vget_low_s32(fours), vget_high_s32(fours)));
}

INLINE void gemv_dots(const hc_gemv_dots_args *args, code_kind kind, int n_lines) {
    const uint8x16_t form = load_form(kind, args->flip, args->table);
    const int x_block = kind <= TABLED ? 2 * BLOCK : BLOCK;
    const int64_t words = args->segment * args->bits / 32, blocks = hc_ceil_div(args->segments * words, 16);
    int64_t s = 0;
    int32x4_t sum[HC_GEMV_LINES];
#pragma GCC unroll 4
    for (int line = 0; line < n_lines; line++)
        sum[line] = vdupq_n_s32(0);
    for (int64_t b = 0; b < blocks; b++) {
        const bool ends = words > 8 && (b + 1) % (words / 16) == 0;
        int8x16_t parts[PARTS][2];
        load_block(args->codes + b * BLOCK, args->row_bytes - b * BLOCK, kind, form, parts);
#pragma GCC unroll 4
        for (int line = 0; line < n_lines; line++) {
            const int8_t *x = args->x + line * args->x_bytes + b * x_block;
            int32_t *dots = args->dots + line * args->ld + s;
            int32x4_t word[PARTS];
#pragma GCC unroll 4
            for (int i = 0; i < PARTS; i++)
                word[i] = add_codes(start_of(vdupq_n_s32(0), kind, x + 16 * i), parts[i], kind, x + 16 * i);
            if (words <= 8) {
                put_words(word, (int)words, dots);
                continue;
            }
            sum[line] = vaddq_s32(sum[line], vaddq_s32(vaddq_s32(word[0], word[1]), vaddq_s32(word[2], word[3])));
            if (ends) {
                *dots = vaddvq_s32(sum[line]);
                sum[line] = vdupq_n_s32(0);
            }
        }
        s += words <= 8 ? 16 / words : ends;
    }
}

INLINE void dots_of_lines(const hc_gemv_dots_args *args, code_kind kind) {
    args->n_lines == 1   ? gemv_dots(args, kind, 1)
    : args->n_lines == 2 ? gemv_dots(args, kind, 2)
    : args->n_lines == 3 ? gemv_dots(args, kind, 3)
                         : gemv_dots(args, kind, 4);
}

#define HC_GEMV_DOTS(isa)                                                                                              \
    void hc_gemv_dots_##isa(const hc_gemv_dots_args *args) {                                                           \
        args->bits == 4 && args->table ? dots_of_lines(args, TABLED)                                                   \
        : args->bits == 4              ? dots_of_lines(args, NIBBLES)                                                  \
        : args->is_narrow              ? dots_of_lines(args, SMALL)                                                    \
                                       : dots_of_lines(args, BYTES);                                                   \
    }

/* --- gemv_folded: 16 lanes of sums per line --- */

/* The scales of words 4 i .. 4 i + 3 of 16, with `words` words per scale; bits begins with the scale of the first
 * word. */
INLINE int32x4_t spread(uint32_t bits, int words, int i) {
    static const int32_t PAIRS[4] = {0, 0, -4, -4};
    if (words == 2)
        return vreinterpretq_s32_u32(
            vandq_u32(vshlq_u32(vdupq_n_u32(bits >> 8 * i), vld1q_s32(PAIRS)), vdupq_n_u32(15)));
    return vdupq_n_s32((int32_t)(bits >> (words == 4 ? 4 * i : i / 2 * 4) & 15));
}

INLINE void gemv_folded(const hc_gemv_folded_args *args, int words, int n_lines) {
    const uint8x16_t form = load_form(NIBBLES, args->flip, NULL);
    int32x4_t sum[HC_GEMV_LINES][PARTS];
#pragma GCC unroll 4
    for (int line = 0; line < n_lines; line++)
#pragma GCC unroll 4
        for (int i = 0; i < PARTS; i++)
            sum[line][i] = vdupq_n_s32(0);
    for (int64_t place = 0; place < args->row_bytes; place += BLOCK) {
        const int64_t left = args->row_bytes - place;
        int8x16_t parts[PARTS][2];
        uint32_t bits = 0;
        memcpy(&bits, args->scales + place / (8 * words), (size_t)hc_ceil_div(hc_min(left, BLOCK), 8 * words));
        load_block(args->codes + place, left, NIBBLES, form, parts);
#pragma GCC unroll 4
        for (int i = 0; i < PARTS; i++) {
            const int32x4_t scale = spread(bits, words, i);
#pragma GCC unroll 4
            for (int line = 0; line < n_lines; line++) {
                const int8_t *x = args->x + line * args->x_bytes + place * 2 + 16 * i;
                const int32x4_t start = vld1q_s32(args->start + line * (args->x_bytes / 8) + place / 4 + 4 * i);
                sum[line][i] = vmlaq_s32(sum[line][i], add_codes(start, parts[i], NIBBLES, x), scale);
            }
        }
    }
#pragma GCC unroll 4
    for (int line = 0; line < n_lines; line++) {
        int64x2_t all = vdupq_n_s64(0);
#pragma GCC unroll 4
        for (int i = 0; i < PARTS; i++)
            all = vpadalq_s32(all, sum[line][i]);
        args->sums[line] = vaddvq_s64(all);
    }
}

INLINE void folded_of_words(const hc_gemv_folded_args *args, int n_lines) {
    args->words == 2   ? gemv_folded(args, 2, n_lines)
    : args->words == 4 ? gemv_folded(args, 4, n_lines)
                       : gemv_folded(args, 8, n_lines);
}

#define HC_GEMV_FOLDED(isa)                                                                                            \
    void hc_gemv_folded_##isa(const hc_gemv_folded_args *args) {                                                       \
        args->n_lines == 1   ? folded_of_words(args, 1)                                                                \
        : args->n_lines == 2 ? folded_of_words(args, 2)                                                                \
                             : folded_of_words(args, 4);                                                               \
    }

#endif
