/* gemv_scaled: 4 rows at a time, whose 32-bit lanes of sums are added until every 128 bits of codes have one sum per
 * row. Two such quads are 8 rows of a segment in lanes, and each lane is the chain of its row. The part of the zero is
 * subtracted from whole segments. Products of bytes of 64 or more, which vpmaddubsw would saturate, are widened.
 */
#include "base/lanes/avx2.h"
#include "kernels/kernel.h"

#include <string.h>

#define INLINE static inline __attribute__((always_inline))

typedef enum { NIBBLES, TABLED, SMALL, BYTES } code_kind;
enum { ROWS = 8, STEP = 8 }; /* rows and segments at a time */
enum { AHEAD_BYTES = 8192 }; /* of codes to prefetch */

/* 32 bytes of codes as two registers for dot: nibbles, or even and odd bytes as int16; one register if SMALL. */
INLINE void load_codes(const uint8_t *codes, int64_t left, code_kind kind, __m256i form, __m256i parts[2]) {
    uint8_t copy[32] = {0};
    const __m256i low = _mm256_set1_epi8(15);
    if (left < 32) {
        memcpy(copy, codes, (size_t)left);
        codes = copy;
    }
    const __m256i stored = _mm256_loadu_si256((const __m256i *)codes);
    if (kind == TABLED) {
        parts[0] = _mm256_shuffle_epi8(form, _mm256_and_si256(stored, low));
        parts[1] = _mm256_shuffle_epi8(form, _mm256_and_si256(_mm256_srli_epi16(stored, 4), low));
        return;
    }
    const __m256i u = _mm256_xor_si256(stored, form);
    parts[0] = kind == NIBBLES ? _mm256_and_si256(u, low)
               : kind == BYTES ? _mm256_and_si256(u, _mm256_set1_epi16(255))
                               : u;
    parts[1] = kind == NIBBLES ? _mm256_and_si256(_mm256_srli_epi16(u, 4), low) : _mm256_srli_epi16(u, 8);
}

/* Sums of 8 words. x: the values for parts[0]; those for upper nibbles are 64 further. */
INLINE __m256i dot(const __m256i parts[2], code_kind kind, const int8_t *x) {
    const __m256i first = _mm256_loadu_si256((const __m256i *)x), ones = _mm256_set1_epi16(1);
    if (kind == BYTES) {
        const __m256i even = _mm256_srai_epi16(_mm256_slli_epi16(first, 8), 8), odd = _mm256_srai_epi16(first, 8);
        return _mm256_add_epi32(_mm256_madd_epi16(parts[0], even), _mm256_madd_epi16(parts[1], odd));
    }
    __m256i pairs = _mm256_maddubs_epi16(parts[0], first);
    if (kind != SMALL) {
        const __m256i second = _mm256_loadu_si256((const __m256i *)(x + 64));
        pairs = _mm256_add_epi16(pairs, _mm256_maddubs_epi16(parts[1], second));
    }
    return _mm256_madd_epi16(pairs, ones);
}

/* Sums of neighbours: in every 128 bits those of a, then those of b. fits: all are within int16. */
INLINE __m256i add_pairs(__m256i a, __m256i b, bool fits) {
    if (fits)
        return _mm256_madd_epi16(_mm256_packs_epi32(a, b), _mm256_set1_epi16(1));
    return _mm256_hadd_epi32(a, b);
}

/* For 8 rows, 32 bytes from `place` on: quads[line][0 and 1], 4 rows each, words 0 to 3 before words 4 to 7. */
INLINE void add_codes(const hc_gemv_scaled_args *args, const uint8_t *const *codes, int64_t place, int64_t left,
                      code_kind kind, __m256i form, int n_lines, __m256i (*quads)[2]) {
    const int8_t *x = args->x + (kind <= TABLED ? place / 64 * 128 + place % 64 : place);
    for (int quad = 0; quad < 2; quad++) {
        __m256i parts[4][2];
#pragma GCC unroll 4
        for (int row = 0; row < 4; row++)
            load_codes(codes[4 * quad + row] + place, left, kind, form, parts[row]);
#pragma GCC unroll 4
        for (int line = 0; line < n_lines; line++) {
            const int8_t *of_line = x + line * args->x_bytes;
            const __m256i first = add_pairs(dot(parts[0], kind, of_line), dot(parts[1], kind, of_line), kind != BYTES);
            const __m256i second = add_pairs(dot(parts[2], kind, of_line), dot(parts[3], kind, of_line), kind != BYTES);
            quads[line][quad] = add_pairs(first, second, kind == NIBBLES); /* of a table: up to 2 * 8 * 30 * 128 */
        }
    }
}

/* The same at the end of a row, once per row, so that it is not inlined. */
static __attribute__((noinline)) void add_end(const hc_gemv_scaled_args *args, const uint8_t *const *codes,
                                              int64_t place, int64_t left, code_kind kind, const __m256i *form,
                                              int n_lines, __m256i (*quads)[2]) {
    kind == TABLED    ? add_codes(args, codes, place, left, TABLED, *form, n_lines, quads)
    : kind == NIBBLES ? add_codes(args, codes, place, left, NIBBLES, *form, n_lines, quads)
    : kind == SMALL   ? add_codes(args, codes, place, left, SMALL, *form, n_lines, quads)
                      : add_codes(args, codes, place, left, BYTES, *form, n_lines, quads);
}

INLINE void add_register(const hc_gemv_scaled_args *args, const uint8_t *const *codes, int64_t place, int64_t left,
                         code_kind kind, __m256i form, int n_lines, __m256i (*quads)[2]) {
    if (left >= 32) {
        add_codes(args, codes, place, 32, kind, form, n_lines, quads);
    } else {
        __m256i end[HC_GEMV_LINES][2]; /* of its own: quads stay in registers */
        add_end(args, codes, place, left, kind, &form, n_lines, end);
#pragma GCC unroll 4
        for (int line = 0; line < n_lines; line++)
            quads[line][0] = end[line][0], quads[line][1] = end[line][1];
    }
}

/* Scales of 8 rows and `n` segments from s on, one register per segment. */
INLINE void load_scales(const hc_gemv_scaled_args *args, const uint8_t *const *from, int64_t s, int64_t n,
                        __m256 scales[STEP]) {
    const __m256i lanes = _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7);
    const __m256i there = _mm256_cmpgt_epi32(_mm256_set1_epi32((int)n), lanes);
    for (int row = 0; row < ROWS; row++) {
        if (args->scale_bits == 32) {
            scales[row] = _mm256_maskload_ps((const float *)(const void *)(from[row] + 4 * s), there);
            continue;
        }
        uint16_t halves[STEP] = {0};
        if (n < STEP)
            memcpy(halves, from[row] + 2 * s, (size_t)n * sizeof *halves);
        const void *whole = n < STEP ? (const void *)halves : from[row] + 2 * s;
        scales[row] = _mm256_cvtph_ps(_mm_loadu_si128((const __m128i *)whole));
    }
    lanes_transpose(scales);
}

INLINE __m256 step(__m256 acc, __m256i dots, int32_t correction, __m256 scale, float x_scale) {
    const __m256i exact = _mm256_add_epi32(dots, _mm256_set1_epi32(correction));
    return _mm256_fmadd_ps(_mm256_mul_ps(_mm256_set1_ps(x_scale), scale), _mm256_cvtepi32_ps(exact), acc);
}

/* Prefetches codes and scales of later rows: `bytes` of codes from `place` on for each row. */
INLINE void prefetch(const hc_gemv_scaled_args *args, const uint8_t *const *codes, const uint8_t *const *from,
                     int64_t place, int64_t bytes, int64_t scale_place) {
    const int64_t rows = (AHEAD_BYTES / (2 * ROWS * args->code_stride) + 1) * 2 * ROWS;
    for (int row = 0; row < ROWS; row++) {
        for (int64_t at = 0; at < bytes; at += 64)
            _mm_prefetch((const char *)codes[row] + place + at + rows * args->code_stride, _MM_HINT_T1);
        if (scale_place % 64 == 0)
            _mm_prefetch((const char *)from[row] + scale_place + rows * args->scale_stride, _MM_HINT_T1);
    }
}

/* What STEP segments of 8 rows need besides codes. Not inlined, since it is the same for all codes. */
static __attribute__((noinline)) void begin_segments(const hc_gemv_scaled_args *args, const uint8_t *const *codes,
                                                     const uint8_t *const *from, int64_t place, int64_t first,
                                                     int64_t n, __m256 scales[STEP], int32_t corrections[][STEP]) {
    const int words = args->words;
    load_scales(args, from, first, n, scales);
    prefetch(args, codes, from, place, n * words * 4, first * args->scale_bits / 8);
    for (int line = 0; line < args->n_lines; line++)
        _mm256_storeu_si256(
            (__m256i *)corrections[line],
            _mm256_mullo_epi32(_mm256_loadu_si256((const __m256i *)(args->x_sums + line * args->ld_scales + first)),
                               _mm256_set1_epi32(-args->zero)));
}

/* Rows of segments of 4 words, or of 8 words in each of `registers` registers. */
INLINE void eight_rows(const hc_gemv_scaled_args *args, const uint8_t *const *codes, const uint8_t *const *from,
                       code_kind kind, int words, int registers, int n_lines, float *out) {
    const __m256i form = kind == TABLED
                             ? _mm256_broadcastsi128_si256(_mm_loadu_si128((const __m128i *)(const void *)args->table))
                             : _mm256_set1_epi8((char)(kind == NIBBLES ? args->flip * 17 : args->flip));
    const int64_t row_bytes = args->segments * words * registers * 4;
    __m256 acc[HC_GEMV_LINES];
    for (int line = 0; line < n_lines; line++)
        acc[line] = _mm256_setzero_ps();
    int64_t place = 0;
    for (int64_t first = 0; first < args->segments; first += STEP) {
        const int64_t n = hc_min(args->segments - first, STEP);
        int32_t corrections[HC_GEMV_LINES][STEP];
        __m256 scales[STEP];
        begin_segments(args, codes, from, place, first, n, scales, corrections);
        for (int64_t s = 0; s < n; s += 8 / words) {
            __m256i quads[HC_GEMV_LINES][2], others[HC_GEMV_LINES][2];
            add_register(args, codes, place, row_bytes - place, kind, form, n_lines, quads);
            place += 32;
            for (int r = 1; r < registers; r++, place += 32) {
                add_register(args, codes, place, row_bytes - place, kind, form, n_lines, others);
                for (int line = 0; line < n_lines; line++)
                    for (int quad = 0; quad < 2; quad++)
                        quads[line][quad] = _mm256_add_epi32(quads[line][quad], others[line][quad]);
            }
#pragma GCC unroll 4
            for (int line = 0; line < n_lines; line++) {
                const float *x_scales = args->x_scales + line * args->ld_scales + first + s;
                const __m256i low = _mm256_permute2x128_si256(quads[line][0], quads[line][1], 0x20);
                const __m256i high = _mm256_permute2x128_si256(quads[line][0], quads[line][1], 0x31);
                if (words == 8) {
                    acc[line] =
                        step(acc[line], _mm256_add_epi32(low, high), corrections[line][s], scales[s], *x_scales);
                    continue;
                }
                acc[line] = step(acc[line], low, corrections[line][s], scales[s], x_scales[0]);
                if (s + 1 < n)
                    acc[line] = step(acc[line], high, corrections[line][s + 1], scales[s + 1], x_scales[1]);
            }
        }
    }
    for (int line = 0; line < n_lines; line++)
        _mm256_storeu_ps(out + 16 * line, acc[line]);
}

INLINE void gemv_scaled(const hc_gemv_scaled_args *args, code_kind kind, int n_lines) {
    for (int first = 0; first < 16; first += ROWS) {
        const uint8_t *codes[ROWS], *scales[ROWS];
        for (int i = 0; i < ROWS; i++) {
            const int64_t row = hc_min(first + i, args->n_rows - 1);
            codes[i] = args->codes + row * args->code_stride;
            scales[i] = args->scales + row * args->scale_stride;
        }
        if (args->words == 4)
            eight_rows(args, codes, scales, kind, 4, 1, n_lines, args->out + first);
        else
            eight_rows(args, codes, scales, kind, 8, args->words / 8, n_lines, args->out + first);
    }
}

INLINE void of_lines(const hc_gemv_scaled_args *args, code_kind kind) {
    args->n_lines == 1   ? gemv_scaled(args, kind, 1)
    : args->n_lines == 2 ? gemv_scaled(args, kind, 2)
                         : gemv_scaled(args, kind, 4);
}

#include "kernels/gemv/gemv_turned_avx2.h"

void hc_gemv_scaled_avx2(const hc_gemv_scaled_args *args) {
    args->bits == 4 && args->table ? of_lines(args, TABLED)
    : args->bits == 4              ? of_lines(args, NIBBLES)
    : args->is_small               ? of_lines(args, SMALL)
                                   : of_lines(args, BYTES);
}

void hc_gemv_scaled_zeros_avx2(const hc_gemv_scaled_args *args) {
    args->bits == 4 ? turned_nibbles(args) : turned_bytes(args);
}

void hc_gemv_turned_avx2(const hc_gemv_scaled_args *args) {
    memset(args->sums, 0, (size_t)args->n_lines * 16 * sizeof *args->sums);
    args->is_small ? folded_small(args) : folded_bytes(args);
}
