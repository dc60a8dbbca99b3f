/* gemv_scaled and gemv_scaled_packed. A slice is 128 bits of codes (bytes, or 4 bits each). The 32-bit sums of 4 rows
 * are added until each slice has one sum per row: parts[slice][row]. The sums of 16 rows are transposed to registers
 * with the 16 rows in lanes. Each lane is the chain of its row.
 *
 * The including file defines hc_code_loader and load_codes, which load a register of codes.
 */
#ifndef HC_GEMV_SCALED_AVX512_H
#define HC_GEMV_SCALED_AVX512_H

#include "kernels/dots/avx512vnni.h"

/* CHUNK: registers of codes per row whose parts are computed before the chains use them (Zen 4, 2026-11). AHEAD_BYTES:
 * distance of the prefetch in codes. Every line is prefetched: without the last lines, rows of 288 bytes took twice as
 * long (Zen 5). */
enum { ROWS = 16, QUADS = 4, CHUNK = 32, AHEAD_BYTES = 8192, MOST_LINES = HC_GEMV_TURNED_LINES };

typedef __m512i hc_parts[CHUNK][QUADS]; /* of one line of x */
_Static_assert(HC_GEMV_LINES * sizeof(hc_parts) <= HC_GEMV_SCALED_BYTES, "scratch");

/* Adds neighbours: every 128 bits of the result have the sums of a, then those of b. is_small: all sums are within
 * int16, so that they can be packed first. */
INLINE __m512i add_pairs(__m512i a, __m512i b, bool is_small) {
    if (is_small)
        return _mm512_madd_epi16(_mm512_packs_epi32(a, b), _mm512_set1_epi16(1));
    const __m512 first = _mm512_castsi512_ps(a), second = _mm512_castsi512_ps(b);
    return _mm512_add_epi32(_mm512_castps_si512(_mm512_shuffle_ps(first, second, 0x88)),
                            _mm512_castps_si512(_mm512_shuffle_ps(first, second, 0xdd)));
}

/* Multiplies register `reg` of the codes of each of 4 rows by n_lines lines of x, and stores the sums at index `at` of
 * the chunk. The rows have `left` bytes from this register on. */
INLINE void add_parts(const hc_gemv_scaled_args *args, const hc_code_loader *loader, const uint8_t *const *codes,
                      int64_t reg, int64_t left, int bits, bool tabled, bool is_small, int n_lines, hc_parts *parts,
                      int64_t at, int quad) {
    const __m512i nibbles = _mm512_set1_epi8(15), flip = _mm512_set1_epi8((char)args->flip);
    const __m512i table =
        tabled ? _mm512_broadcast_i32x4(_mm_loadu_si128((const __m128i *)(const void *)args->table)) : flip;
    const int8_t *x = args->x + reg * 512 / bits;
    const int32_t *start = args->start + reg * 16;
    __m512i sum[HC_GEMV_LINES][4];
#pragma GCC unroll 4
    for (int row = 0; row < 4; row++) {
        const __m512i stored = load_codes(loader, codes[row] + reg * loader->bytes, left);
        __m512i low = _mm512_xor_si512(stored, flip), high = low;
        if (tabled) {
            low = _mm512_shuffle_epi8(table, _mm512_and_si512(stored, nibbles));
            high = _mm512_shuffle_epi8(table, _mm512_and_si512(_mm512_srli_epi16(stored, 4), nibbles));
        } else if (bits == 4) { /* (codes & 15) ^ flip */
            low = _mm512_ternarylogic_epi32(stored, nibbles, flip, 0x6a);
            high = _mm512_ternarylogic_epi32(_mm512_srli_epi16(stored, 4), nibbles, flip, 0x6a);
        }
#pragma GCC unroll 4
        for (int line = 0; line < n_lines; line++) {
            const int8_t *of_line = x + line * args->x_bytes;
            sum[line][row] = _mm512_loadu_si512(start + line * args->ld_start);
            sum[line][row] = dot(sum[line][row], low, _mm512_loadu_si512(of_line));
            if (bits == 4)
                sum[line][row] = dot(sum[line][row], high, _mm512_loadu_si512(of_line + 64));
        }
    }
#pragma GCC unroll 4
    for (int line = 0; line < n_lines; line++) {
        const __m512i even = add_pairs(sum[line][0], sum[line][1], is_small);
        parts[line][at][quad] = add_pairs(even, add_pairs(sum[line][2], sum[line][3], is_small), bits == 4);
    }
}

/* Distance of the prefetch in rows: whole calls of ROWS rows, at least AHEAD_BYTES. */
INLINE int64_t rows_ahead(const hc_gemv_scaled_args *args) {
    return (AHEAD_BYTES / (ROWS * args->code_stride) + 1) * ROWS;
}

/* Codes to prefetch for a quad: line `row` of register i is at data + i * step + row * apart. */
typedef struct {
    const uint8_t *data;
    int64_t apart, step;
} hc_ahead;

/* If whole rows are read (is_whole), adjacent lines are prefetched, otherwise the lines of later rows. */
INLINE hc_ahead ahead_of(const hc_gemv_scaled_args *args, const hc_code_loader *loader, const uint8_t *codes,
                         int64_t first, bool is_whole) {
    return is_whole ? (hc_ahead){codes + AHEAD_BYTES, 64, 4 * loader->bytes}
                    : (hc_ahead){codes + rows_ahead(args) * args->code_stride + first * loader->bytes,
                                 args->code_stride, loader->bytes};
}

/* Computes the parts of 16 rows for n registers of codes from `first` on. Each row has `left` bytes from there on. The
 * lines of the last quad are prefetched by add_chains, so that memory is not idle there. */
INLINE void add_chunk(const hc_gemv_scaled_args *args, const hc_code_loader *loader, const uint8_t *const *codes,
                      int64_t first, int64_t n, int64_t left, bool is_whole, int bits, bool tabled, bool is_small,
                      int n_lines, hc_parts *parts) {
    for (int quad = 0; quad < QUADS; quad++) {
        const uint8_t *const rows[4] = {codes[4 * quad], codes[4 * quad + 1], codes[4 * quad + 2], codes[4 * quad + 3]};
        const hc_ahead ahead = ahead_of(args, loader, rows[0], first, is_whole);
        const uint8_t *next = ahead.data;
        const int lines = quad + 1 < QUADS ? 4 : 0;
        int64_t i = 0;
        for (; i + 4 <= n && left - (i + 3) * loader->bytes >= 64; i += 4)
#pragma GCC unroll 4
            for (int j = 0; j < 4; j++) {
                for (int row = 0; row < lines; row++)
                    _mm_prefetch(next + row * ahead.apart, _MM_HINT_T1);
                next += ahead.step;
                add_parts(args, loader, rows, first + i + j, 64, bits, tabled, is_small, n_lines, parts, i + j, quad);
            }
        for (; i < n; i++) {
            for (int row = 0; row < lines; row++)
                _mm_prefetch(next + row * ahead.apart, _MM_HINT_T1);
            next += ahead.step;
            add_parts(args, loader, rows, first + i, left - i * loader->bytes, bits, tabled, is_small, n_lines, parts,
                      i, quad);
        }
    }
}

/* Transposes the parts of 16 rows to 4 slices with the rows in lanes. */
INLINE void turn_parts(const __m512i *parts, __m512i *slices) {
    const __m512i a = _mm512_shuffle_i32x4(parts[0], parts[1], 0x88),
                  b = _mm512_shuffle_i32x4(parts[0], parts[1], 0xdd);
    const __m512i c = _mm512_shuffle_i32x4(parts[2], parts[3], 0x88),
                  d = _mm512_shuffle_i32x4(parts[2], parts[3], 0xdd);
    slices[0] = _mm512_shuffle_i32x4(a, c, 0x88);
    slices[1] = _mm512_shuffle_i32x4(b, d, 0x88);
    slices[2] = _mm512_shuffle_i32x4(a, c, 0xdd);
    slices[3] = _mm512_shuffle_i32x4(b, d, 0xdd);
}

INLINE void load_scales(const hc_gemv_scaled_args *args, const uint8_t *const *from, int64_t s, __mmask16 mask,
                        __m512 *scales) {
    const int64_t place = s * args->scale_bits / 8;
    if (place % 64 == 0)
        for (int i = 0; i < ROWS; i++)
            _mm_prefetch(from[i] + place + rows_ahead(args) * args->scale_stride, _MM_HINT_T1);
    if (args->scale_bits == 16) {
        load_halves(from, s, mask, scales);
        return;
    }
#pragma GCC unroll 16
    for (int i = 0; i < ROWS; i++)
        scales[i] = _mm512_maskz_loadu_ps(mask, from[i] + 4 * s);
    lanes_transpose(scales);
}

/* Zero points of 16 rows, and the sums of x that they multiply. */
typedef struct {
    const __m512i *zeros; /* (16 segments), or NULL */
    const int32_t *x_sums;
} hc_minus;

/* Adds the next `steps` segments, at most 16. A segment has `slices` slices, or `more` times 4 if slices is 4. */
INLINE __m512 add_segments(__m512 acc, int64_t steps, int slices, int more, const float *x_scales, const __m512 *scales,
                           hc_minus minus, const __m512i (*parts)[QUADS]) {
    const int at_once = slices < 4 ? 4 / slices : 1;
#pragma GCC unroll 16
    for (int s = 0; s < 16; s += at_once) {
        __m512i dots[4];
        if (s >= steps)
            break;
        turn_parts(*parts++, dots);
        for (int i = 1; i < more; i++) {
            __m512i others[4];
            turn_parts(*parts++, others);
            for (int j = 0; j < 4; j++)
                dots[j] = _mm512_add_epi32(dots[j], others[j]);
        }
#pragma GCC unroll 2
        for (int n = 4; n > at_once; n /= 2)
#pragma GCC unroll 2
            for (int i = 0; i < n / 2; i++)
                dots[i] = _mm512_add_epi32(dots[2 * i], dots[2 * i + 1]);
#pragma GCC unroll 4
        for (int i = 0; i < at_once; i++) {
            if (s + i >= steps)
                break;
            const __m512 scale = _mm512_mul_ps(_mm512_set1_ps(x_scales[s + i]), scales[s + i]);
            if (minus.zeros)
                dots[i] = _mm512_sub_epi32(
                    dots[i], _mm512_mullo_epi32(minus.zeros[s + i], _mm512_set1_epi32(minus.x_sums[s + i])));
            acc = _mm512_fmadd_ps(scale, _mm512_cvtepi32_ps(dots[i]), acc);
        }
    }
    return acc;
}

/* The last segments of a row: add_segments that is not inlined, since it runs once per row. */
static __attribute__((noinline)) __m512 add_last(__m512 acc, int64_t steps, int slices, int more, const float *x_scales,
                                                 const __m512 *scales, hc_minus minus, const __m512i (*parts)[QUADS]) {
    return slices == 1   ? add_segments(acc, steps, 1, 1, x_scales, scales, minus, parts)
           : slices == 2 ? add_segments(acc, steps, 2, 1, x_scales, scales, minus, parts)
                         : add_segments(acc, steps, 4, more, x_scales, scales, minus, parts);
}

/* Zero points first .. first + steps of 16 rows, as integers with the rows in lanes. */
static __attribute__((noinline)) void load_zeros(const hc_gemv_scaled_args *args, int64_t first, int64_t steps,
                                                 __m512i *zeros) {
    const __mmask16 mask = (__mmask16)(0xffffu >> (16 - steps));
    __m512 rows[16];
    for (int i = 0; i < ROWS; i++)
        rows[i] = _mm512_maskz_loadu_ps(mask, args->zeros + hc_min(i, args->n_rows - 1) * args->ld_zeros + first);
    lanes_transpose(rows);
    for (int i = 0; i < 16; i++)
        zeros[i] = _mm512_cvtps_epi32(rows[i]);
}

INLINE void add_chains(const hc_gemv_scaled_args *args, const uint8_t *const *from, int64_t first, int64_t n,
                       int slices, int more, int n_lines, bool has_zeros, hc_ahead ahead, const hc_parts *parts,
                       __m512 *acc) {
    for (int64_t s = 0; s < n; s += 16) {
        const int64_t steps = hc_min(n - s, 16), at = s * slices * more / 4;
        for (int64_t i = at; i < at + 4 * slices * more; i++)
#pragma GCC unroll 4
            for (int row = 0; row < 4; row++)
                _mm_prefetch(ahead.data + i * ahead.step + row * ahead.apart, _MM_HINT_T1);
        __m512 scales[16];
        __m512i zeros[16];
        load_scales(args, from, first + s, (__mmask16)(0xffffu >> (16 - steps)), scales);
        if (has_zeros)
            load_zeros(args, first + s, steps, zeros);
#pragma GCC unroll 4
        for (int line = 0; line < n_lines; line++) {
            const float *x_scales = args->x_scales + line * args->ld_scales + first + s;
            const hc_minus minus = {has_zeros ? zeros : NULL,
                                    has_zeros ? args->x_sums + line * args->ld_scales + first + s : NULL};
            acc[line] = steps == 16
                            ? add_segments(acc[line], 16, slices, more, x_scales, scales, minus, parts[line] + at)
                            : add_last(acc[line], steps, slices, more, x_scales, scales, minus, parts[line] + at);
        }
    }
}

/* The chains of a chunk. Not inlined, since they are the same for all codes. */
#define CHAINS(slices, more, has_zeros)                                                                                \
    (n_lines == 1   ? add_chains(args, from, first, n, slices, more, 1, has_zeros, ahead, parts, acc)                  \
     : n_lines == 2 ? add_chains(args, from, first, n, slices, more, 2, has_zeros, ahead, parts, acc)                  \
                    : add_chains(args, from, first, n, slices, more, 4, has_zeros, ahead, parts, acc))
static __attribute__((noinline)) void add_all_chains(const hc_gemv_scaled_args *args, const uint8_t *const *from,
                                                     int64_t first, int64_t n, int n_lines, hc_ahead ahead,
                                                     const hc_parts *parts, __m512 *acc) {
    args->words == 4   ? CHAINS(1, 1, false)
    : args->words == 8 ? CHAINS(2, 1, false)
                       : CHAINS(4, args->words / 16, false);
}
static __attribute__((noinline, unused)) void add_all_zeros(const hc_gemv_scaled_args *args, const uint8_t *const *from,
                                                            int64_t first, int64_t n, int n_lines, hc_ahead ahead,
                                                            const hc_parts *parts, __m512 *acc) {
    args->words == 4 ? CHAINS(1, 1, true) : args->words == 8 ? CHAINS(2, 1, true) : CHAINS(4, args->words / 16, true);
}
#undef CHAINS

INLINE void gemv_scaled(const hc_gemv_scaled_args *args, const hc_code_loader *loader, int bits, bool tabled,
                        bool is_small, bool has_zeros, int n_lines) {
    const int64_t chunk_segments = CHUNK * 16 / args->words;
    const bool is_whole = args->segments <= chunk_segments;
    const uint8_t *codes[ROWS], *scales[ROWS];
    hc_parts *parts = args->scratch;
    __m512 acc[HC_GEMV_LINES];
    for (int i = 0; i < ROWS; i++) {
        codes[i] = args->codes + hc_min(i, args->n_rows - 1) * args->code_stride;
        scales[i] = args->scales + hc_min(i, args->n_rows - 1) * args->scale_stride;
    }
#pragma GCC unroll 4
    for (int line = 0; line < n_lines; line++)
        acc[line] = _mm512_setzero_ps();
    for (int64_t first = 0; first < args->segments; first += chunk_segments) {
        const int64_t n = hc_min(args->segments - first, chunk_segments);
        const int64_t from = first * args->words / 16, left = args->segments * args->words * loader->bytes / 16;
        add_chunk(args, loader, codes, from, hc_ceil_div(n * args->words, 16), left - from * loader->bytes, is_whole,
                  bits, tabled, is_small, n_lines, parts);
        const hc_ahead ahead = ahead_of(args, loader, codes[ROWS - 4], from, is_whole);
        has_zeros ? add_all_zeros(args, scales, first, n, n_lines, ahead, (const hc_parts *)parts, acc)
                  : add_all_chains(args, scales, first, n, n_lines, ahead, (const hc_parts *)parts, acc);
    }
#pragma GCC unroll 4
    for (int line = 0; line < n_lines; line++)
        _mm512_storeu_ps(args->out + ROWS * line, acc[line]);
}

/* From three lines on, the words of codes are transposed, once for all lines. A lane is then a row from the start, and
 * no sums are added across lanes. Four lines of short segments are faster without (Zen 4, 2026-11). */

/* Register `reg` of the codes of each row, of which the rows have `left` bytes: 16 words with the rows in lanes. */
static __attribute__((noinline)) void turn_codes(const hc_gemv_scaled_args *args, const hc_code_loader *loader,
                                                 const uint8_t *const *codes, int64_t reg, int64_t left,
                                                 __m512i *turned) {
    const int64_t ahead = rows_ahead(args) * args->code_stride;
    __m512 words[ROWS];
#pragma GCC unroll 16
    for (int row = 0; row < ROWS; row++) {
        const uint8_t *from = codes[row] + reg * loader->bytes;
        _mm_prefetch(from + ahead, _MM_HINT_T1);
        words[row] = _mm512_castsi512_ps(load_codes(loader, from, left));
    }
    lanes_transpose(words);
#pragma GCC unroll 16
    for (int row = 0; row < ROWS; row++)
        turned[row] = _mm512_castps_si512(words[row]);
}

/* Independent sums of a line: a sum waits for the one before. */
INLINE int chains_of(int n_lines) { return n_lines == 1 ? 2 : 1; }

/* Adds the products of n words, 4 or more, with each line. */
INLINE void add_words(const __m512i *turned, int64_t n, const int8_t *const *x, int64_t at, __m512i form, int bits,
                      bool tabled, int n_lines, __m512i *sum) {
    const __m512i nibbles = _mm512_set1_epi8(15);
    for (int64_t w = 0; w < n; w += 4, at += 16)
#pragma GCC unroll 4
        for (int i = 0; i < 4; i++) {
            const __m512i stored = turned[w + i];
            __m512i low = _mm512_xor_si512(stored, form), high = low;
            if (tabled) {
                low = _mm512_shuffle_epi8(form, _mm512_and_si512(stored, nibbles));
                high = _mm512_shuffle_epi8(form, _mm512_and_si512(_mm512_srli_epi16(stored, 4), nibbles));
            } else if (bits == 4) { /* (codes & 15) ^ flip */
                low = _mm512_ternarylogic_epi32(stored, nibbles, form, 0x6a);
                high = _mm512_ternarylogic_epi32(_mm512_srli_epi16(stored, 4), nibbles, form, 0x6a);
            }
#pragma GCC unroll 8
            for (int line = 0; line < n_lines; line++) {
                __m512i *chain = sum + line * chains_of(n_lines) + i % chains_of(n_lines);
                *chain = dot_each(*chain, low, x[line] + at + 4 * i);
                if (bits == 4)
                    *chain = dot_each(*chain, high, x[line] + at + 4 * i + 64);
            }
        }
}

/* Adds 16 rows of int32 to int64 sums, and returns 0. */
INLINE __m512i keep_sums(__m512i sum, int64_t *to) {
    const __m512i low = _mm512_cvtepi32_epi64(_mm512_castsi512_si256(sum));
    const __m512i high = _mm512_cvtepi32_epi64(_mm512_extracti64x4_epi64(sum, 1));
    _mm512_storeu_si512(to, _mm512_add_epi64(_mm512_loadu_si512(to), low));
    _mm512_storeu_si512(to + 8, _mm512_add_epi64(_mm512_loadu_si512(to + 8), high));
    return _mm512_setzero_si512();
}

/* n_lines: at least those of args; the last one is then multiplied again. folds: scales are integers, and so are the
 * sums, of gemv_turned. */
INLINE void turned_rows(const hc_gemv_scaled_args *args, const hc_code_loader *loader, int bits, bool tabled,
                        bool folds, int n_lines) {
    const __m512i form = tabled ? _mm512_broadcast_i32x4(_mm_loadu_si128((const __m128i *)(const void *)args->table))
                                : _mm512_set1_epi8((char)args->flip);
    const int64_t words = args->words, part = hc_min(words, 16),
                  row_bytes = args->segments * words * loader->bytes / 16;
    const uint8_t *codes[ROWS], *from[ROWS];
    const int8_t *x[MOST_LINES];
    __m512i *turned = args->scratch;
    __m512i acc[MOST_LINES]; /* of floats, or of integers since they were kept */
    int64_t held = 0;
    const int chains = chains_of(n_lines);
    for (int i = 0; i < ROWS; i++) {
        codes[i] = args->codes + hc_min(i, args->n_rows - 1) * args->code_stride;
        from[i] = args->scales + hc_min(i, args->n_rows - 1) * args->scale_stride;
    }
#pragma GCC unroll 8
    for (int line = 0; line < n_lines; line++) {
        x[line] = args->x + hc_min(line, args->n_lines - 1) * args->x_bytes;
        acc[line] = _mm512_setzero_si512();
    }
    for (int64_t first = 0; first < args->segments; first += 16) {
        const int64_t steps = hc_min(args->segments - first, 16);
        __m512 scales[16];
        __m512i zeros[16];
        load_scales(args, from, first, (__mmask16)(0xffffu >> (16 - steps)), scales);
        if (args->zeros)
            load_zeros(args, first, steps, zeros);
        for (int64_t s = 0; s < steps; s++) {
            const int32_t *x_sums = args->x_sums + first + s;
            const float *x_scales = folds ? NULL : args->x_scales + first + s;
            __m512i sum[MOST_LINES];
#pragma GCC unroll 8
            for (int line = 0; line < n_lines; line++) {
                const int32_t minus = -x_sums[hc_min(line, args->n_lines - 1) * args->ld_scales];
                sum[line * chains] = args->zeros ? _mm512_mullo_epi32(zeros[s], _mm512_set1_epi32(minus))
                                                 : _mm512_set1_epi32(minus * args->zero);
                if (chains == 2)
                    sum[1] = _mm512_setzero_si512();
            }
            for (int64_t word = (first + s) * words, end = word + words; word < end; word += part) {
                const int64_t reg = word / 16;
                if (word % 16 == 0)
                    turn_codes(args, loader, codes, reg, row_bytes - reg * loader->bytes, turned);
                add_words(turned + word % 16, part, x, reg * 512 / bits + word % 16 * 4, form, bits, tabled, n_lines,
                          sum);
            }
            if (chains == 2)
                sum[0] = _mm512_add_epi32(sum[0], sum[1]);
            const __m512i factor = _mm512_cvtps_epi32(scales[s]);
#pragma GCC unroll 8
            for (int line = 0; line < n_lines; line++) {
                if (folds) {
                    acc[line] = _mm512_add_epi32(acc[line], _mm512_mullo_epi32(sum[line], factor));
                    continue;
                }
                const float x_scale = x_scales[hc_min(line, args->n_lines - 1) * args->ld_scales];
                const __m512 scale = _mm512_mul_ps(_mm512_set1_ps(x_scale), scales[s]);
                acc[line] = _mm512_castps_si512(
                    _mm512_fmadd_ps(scale, _mm512_cvtepi32_ps(sum[line]), _mm512_castsi512_ps(acc[line])));
            }
            if (folds && ++held == args->most) {
                held = 0;
#pragma GCC unroll 8
                for (int line = 0; line < n_lines; line++)
                    if (line < args->n_lines)
                        acc[line] = keep_sums(acc[line], args->sums + ROWS * line);
            }
        }
    }
#pragma GCC unroll 8
    for (int line = 0; line < n_lines; line++) {
        if (line < args->n_lines && folds)
            keep_sums(acc[line], args->sums + ROWS * line);
        else if (line < args->n_lines)
            _mm512_storeu_ps(args->out + ROWS * line, _mm512_castsi512_ps(acc[line]));
    }
}

INLINE void turned_sums(const hc_gemv_scaled_args *args, const hc_code_loader *loader) {
    for (int i = 0; i < args->n_lines * ROWS; i++)
        args->sums[i] = 0;
    args->n_lines == 1   ? turned_rows(args, loader, 8, false, true, 1)
    : args->n_lines == 2 ? turned_rows(args, loader, 8, false, true, 2)
    : args->n_lines <= 4 ? turned_rows(args, loader, 8, false, true, 4)
    : args->n_lines <= 6 ? turned_rows(args, loader, 8, false, true, 6)
                         : turned_rows(args, loader, 8, false, true, MOST_LINES);
}

INLINE void turned_lines(const hc_gemv_scaled_args *args, const hc_code_loader *loader, int bits, bool tabled) {
    args->n_lines <= 4   ? turned_rows(args, loader, bits, tabled, false, 4)
    : args->n_lines <= 6 ? turned_rows(args, loader, bits, tabled, false, 6)
                         : turned_rows(args, loader, bits, tabled, false, MOST_LINES);
}

INLINE void gemv_scaled_bits(const hc_gemv_scaled_args *args, const hc_code_loader *loader, int bits, bool tabled,
                             bool is_small, bool has_zeros) {
    args->n_lines == 1                       ? gemv_scaled(args, loader, bits, tabled, is_small, has_zeros, 1)
    : args->n_lines == 2                     ? gemv_scaled(args, loader, bits, tabled, is_small, has_zeros, 2)
    : args->n_lines == 4 && args->words < 16 ? gemv_scaled(args, loader, bits, tabled, is_small, has_zeros, 4)
                                             : turned_lines(args, loader, bits, tabled);
}

#endif
