/* few_groups: 16 groups in lanes. A block of 16 groups is turned from [group][word] into [word][group]; then each
 * word's codes, low bits first, are one step of the 16 chains.
 *
 * A nibble becomes a float by tables: at bit 0 by vpermps (16 entries; it reads the low 4 bits of each index), at bit
 * 16 by vpermw with the lower halves zeroed (a bfloat16 is the upper half of a float). A byte becomes mantissa bits of
 * 2^(23 - bit), from which 2^(23 - bit) + zero is subtracted, exactly.
 */
#include "kernels/kernel.h"

#include <immintrin.h>

#define INLINE static inline __attribute__((always_inline))
/* Words of a group turned at once; blocks of one row side by side; values of x that L1 holds beside all else; bytes
 * prefetched ahead of the codes: Zen 4, 2026-11. */
enum { CHUNK = 16, BLOCKS = 4, NEAR = 6144, AHEAD = 4096 };

typedef struct {
    __m512 table;              /* nibbles: c by code */
    __m512i table_bf16;        /* the same, 32 entries: bit 4 of the index is ignored */
    __m512i field[2], mask[2]; /* bytes at bit 0 and 8: an exponent above the flipped code; what is kept of a word */
    __m512 offset[2];
} hc_decoder;

INLINE hc_decoder make_decoder(int bits, int flip, float zero) {
    hc_decoder d;
    const __m512i flips = _mm512_set1_epi32(flip);
    const __m512i codes = _mm512_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15);
    if (bits == 4) {
        d.table = _mm512_sub_ps(_mm512_cvtepi32_ps(_mm512_xor_si512(codes, flips)), _mm512_set1_ps(zero));
        const __m256i halves = _mm512_cvtepi32_epi16(_mm512_srli_epi32(_mm512_castps_si512(d.table), 16));
        d.table_bf16 = _mm512_broadcast_i64x4(halves);
    }
    for (int p = 0; p < 2; p++) {
        const __m512i exponent = _mm512_set1_epi32((150 - 8 * p) << 23);
        d.mask[p] = _mm512_set1_epi32(0xff << 8 * p);
        d.field[p] = _mm512_xor_si512(exponent, _mm512_set1_epi32(flip << 8 * p));
        d.offset[p] = _mm512_add_ps(_mm512_castsi512_ps(exponent), _mm512_set1_ps(zero));
    }
    return d;
}

/* Words shifted right so that every code stands where it can be taken. */
typedef struct {
    __m512i shifted[4];
} hc_words;

INLINE hc_words make_words(__m512i words, int bits) {
    hc_words w = {{words, words, words, words}};
    if (bits == 4)
        for (int i = 1; i < 4; i++)
            w.shifted[i] = _mm512_srli_epi32(words, 4 * i);
    else
        w.shifted[1] = _mm512_srli_epi32(words, 16);
    return w;
}

INLINE __m512 code_f32x16(const hc_decoder *d, const hc_words *w, int bits, int j) {
    if (bits == 4 && j < 4)
        return _mm512_permutexvar_ps(w->shifted[j], d->table);
    if (bits == 4)
        return _mm512_castsi512_ps(_mm512_maskz_permutexvar_epi16(0xaaaaaaaau, w->shifted[j - 4], d->table_bf16));
    const __m512i field =
        _mm512_ternarylogic_epi32(w->shifted[j / 2], d->mask[j % 2], d->field[j % 2], 0x6a); /* (w & mask) ^ field */
    return _mm512_sub_ps(_mm512_castsi512_ps(field), d->offset[j % 2]);
}

/* n registers hold [16 groups][n words]; each stage parts even from odd words. */
INLINE void part_words(__m512i *a, int n) {
    const __m512i even = _mm512_setr_epi32(0, 2, 4, 6, 8, 10, 12, 14, 16, 18, 20, 22, 24, 26, 28, 30);
    const __m512i odd = _mm512_setr_epi32(1, 3, 5, 7, 9, 11, 13, 15, 17, 19, 21, 23, 25, 27, 29, 31);
    __m512i b[CHUNK];
    for (int parts = 1; parts < n; parts *= 2) { /* part q holds the words congruent to q modulo parts */
        const int size = n / parts, half = size / 2;
        for (int i = 0; i < n / 2; i++) {
            const int q = i / half, j = i % half;
            b[q * half + j] = _mm512_permutex2var_epi32(a[q * size + 2 * j], even, a[q * size + 2 * j + 1]);
            b[(q + parts) * half + j] = _mm512_permutex2var_epi32(a[q * size + 2 * j], odd, a[q * size + 2 * j + 1]);
        }
        for (int i = 0; i < n; i++)
            a[i] = b[i];
    }
}

/* A block whose groups have 2, 4 or 8 words: [group][word] -> [word][group]; no byte behind its last group is read. */
INLINE void turn_block(const uint8_t *codes, int words, int64_t groups, __m512i *out) {
    for (int i = 0; i < words; i++) {
        const int64_t left = groups * words - 16 * i;
        const __mmask16 mask = left >= 16 ? 0xffff : left <= 0 ? 0 : (__mmask16)((1u << left) - 1);
        out[i] = groups == 16 ? _mm512_loadu_si512(codes + 64 * i) : _mm512_maskz_loadu_epi32(mask, codes + 64 * i);
    }
    if (words == 2) { /* spelled out: these stay in registers */
        const __m512i a = out[0], b = out[1];
        out[0] = _mm512_permutex2var_epi32(
            a, _mm512_setr_epi32(0, 2, 4, 6, 8, 10, 12, 14, 16, 18, 20, 22, 24, 26, 28, 30), b);
        out[1] = _mm512_permutex2var_epi32(
            a, _mm512_setr_epi32(1, 3, 5, 7, 9, 11, 13, 15, 17, 19, 21, 23, 25, 27, 29, 31), b);
    } else if (words == 4) {
        const __m512i even = _mm512_setr_epi32(0, 2, 4, 6, 8, 10, 12, 14, 16, 18, 20, 22, 24, 26, 28, 30);
        const __m512i odd = _mm512_setr_epi32(1, 3, 5, 7, 9, 11, 13, 15, 17, 19, 21, 23, 25, 27, 29, 31);
        const __m512i a = _mm512_permutex2var_epi32(out[0], even, out[1]);
        const __m512i b = _mm512_permutex2var_epi32(out[2], even, out[3]);
        const __m512i c = _mm512_permutex2var_epi32(out[0], odd, out[1]);
        const __m512i d = _mm512_permutex2var_epi32(out[2], odd, out[3]);
        out[0] = _mm512_permutex2var_epi32(a, even, b);
        out[1] = _mm512_permutex2var_epi32(c, even, d);
        out[2] = _mm512_permutex2var_epi32(a, odd, b);
        out[3] = _mm512_permutex2var_epi32(c, odd, d);
    } else {
        part_words(out, words);
    }
}

/* The same for n words from `first` on of groups of any length. */
static void turn_chunk(const uint8_t *codes, int64_t words, int64_t first, int64_t n, int64_t groups, __m512i *out) {
    if (words == 8) {
        turn_block(codes, 8, groups, out);
    } else if (n == CHUNK) {
        for (int i = 0; i < CHUNK; i++)
            out[i] = i < groups ? _mm512_loadu_si512(codes + 4 * (i * words + first)) : _mm512_setzero_si512();
        part_words(out, CHUNK);
    } else {
        const __m512i lanes = _mm512_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15);
        const __m512i places = _mm512_mullo_epi32(_mm512_set1_epi32((int)words), lanes);
        const __mmask16 mask = (__mmask16)((1u << groups) - 1);
        for (int64_t h = 0; h < n; h++)
            out[h] = _mm512_mask_i32gather_epi32(_mm512_setzero_si512(), mask, places, codes + 4 * (first + h), 4);
    }
}

/* Scales g .. g + 15 as float32, g a multiple of 16; those outside of the mask are not touched. */
INLINE __m512 load_scales(const uint8_t *scales, int bits, int64_t g, __mmask16 mask) {
    const __m512i lanes = _mm512_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15);
    const uint8_t *from = scales + g * bits / 8;
    _mm_prefetch(from + AHEAD / 2, _MM_HINT_T1);
    if (bits == 32)
        return _mm512_maskz_loadu_ps(mask, from);
    if (bits == 16)
        return _mm512_cvtph_ps(_mm256_maskz_loadu_epi16(mask, from));
    const __mmask16 exist = (__mmask16)_pext_u32(mask, 0x5555); /* the mask has no gaps */
    const __m128i bytes = mask == 0xffff ? _mm_loadl_epi64((const __m128i *)from) : _mm_maskz_loadu_epi8(exist, from);
    const __m512i pairs = _mm512_cvtepu8_epi32(_mm_unpacklo_epi8(bytes, bytes));
    const __m512i shifts = _mm512_and_si512(_mm512_slli_epi32(lanes, 2), _mm512_set1_epi32(4));
    return _mm512_permutexvar_ps(_mm512_srlv_epi32(pairs, shifts), _mm512_cvtepi32_ps(lanes));
}

/* p = fmaf(x, c, p) for the codes of one word of each of n_rows rows. */
INLINE void add_word(const hc_decoder *d, const __m512i turned[], const __m512 zero[], const float *x, __m512 p[],
                     int bits, int n_rows, int n_vectors, bool zeros) {
    hc_words words[HC_FEW_ROWS];
    for (int r = 0; r < n_rows; r++)
        words[r] = make_words(turned[r], bits);
#pragma GCC unroll 8
    for (int j = 0; j < 32 / bits; j++) {
        __m512 x_f32x16[HC_FEW_VECTORS];
        for (int i = 0; i < n_vectors; i++)
            x_f32x16[i] = _mm512_loadu_ps(x + (j * n_vectors + i) * 16);
        for (int r = 0; r < n_rows; r++) {
            __m512 c = code_f32x16(d, &words[r], bits, j);
            if (zeros)
                c = _mm512_sub_ps(c, zero[r]);
            for (int i = 0; i < n_vectors; i++)
                p[r * n_vectors + i] = _mm512_fmadd_ps(x_f32x16[i], c, p[r * n_vectors + i]);
        }
    }
}

/* Blocks of 16 groups from `first` on, of all rows side by side: every load of x serves four of them. */
INLINE void add_rows(const hc_few_floats_args *args, const hc_decoder *d, int64_t first, int bits, int n_vectors,
                     int words, bool zeros, __m512 acc[]) {
    const int n_rows = HC_FEW_ROWS;
    const int64_t group_words = words ? words : args->group * bits / 32, x_step = 32 / bits * n_vectors * 16;
    for (int64_t g = first; g < args->groups; g += 16) {
        const int64_t groups = hc_min(args->groups - g, 16), place = g * group_words * 4;
        const __mmask16 mask = (__mmask16)((1u << groups) - 1);
        const float *x = args->x + g / 16 * group_words * x_step;
        __m512 p[HC_FEW_ROWS * HC_FEW_VECTORS], zero[HC_FEW_ROWS];
        for (int r = 0; r < n_rows; r++) {
            for (int64_t line = 0; line < group_words; line++)
                _mm_prefetch(args->next[r] + place + 64 * line, _MM_HINT_T1);
            zero[r] = zeros ? _mm512_maskz_loadu_ps(mask, args->zeros[r] + g) : _mm512_setzero_ps();
        }
        for (int i = 0; i < n_rows * n_vectors; i++)
            p[i] = _mm512_setzero_ps();
        __m512i turned[HC_FEW_ROWS][CHUNK], word[HC_FEW_ROWS];
        for (int64_t start = 0; start < group_words; start += CHUNK) {
            const int64_t n = hc_min(group_words - start, CHUNK);
            for (int r = 0; r < n_rows; r++)
                if (words)
                    turn_block(args->codes[r] + place, words, groups, turned[r]);
                else
                    turn_chunk(args->codes[r] + place, group_words, start, n, groups, turned[r]);
#pragma GCC unroll 4
            for (int64_t h = 0; h < n; h++) {
                for (int r = 0; r < n_rows; r++)
                    word[r] = turned[r][h];
                add_word(d, word, zero, x + (start + h) * x_step, p, bits, n_rows, n_vectors, zeros);
            }
        }
        for (int r = 0; r < n_rows; r++) {
            const __m512 scale = load_scales(args->scales[r], args->scale_bits, g, mask);
            for (int i = r * n_vectors; i < (r + 1) * n_vectors; i++)
                acc[i] = _mm512_mask3_fmadd_ps(scale, p[i], acc[i], mask);
        }
    }
}

/* One row, one vector: BLOCKS blocks side by side, while so many are left; returns the first group behind them. One
 * stream of memory at a time, and x stays in the nearest cache. */
INLINE int64_t add_row(const hc_few_floats_args *args, const hc_decoder *d, int r, int bits, int words, int scale_bits,
                       __m512 *acc) {
    const int64_t x_step = 32 / bits * 16;
    int64_t g = 0;
    for (; g + 16 * BLOCKS <= args->groups; g += 16 * BLOCKS) {
        const uint8_t *codes = args->codes[r] + g * words * 4;
        const float *x = args->x + g / 16 * words * x_step;
        __m512i turned[BLOCKS][4];
        __m512 p[BLOCKS];
        for (int b = 0; b < BLOCKS; b++) {
            turn_block(codes + 64 * words * b, words, 16, turned[b]);
            for (int line = 0; line < words; line++)
                _mm_prefetch(codes + 64 * (words * b + line) + AHEAD, _MM_HINT_T1);
            p[b] = _mm512_setzero_ps();
        }
#pragma GCC unroll 4
        for (int h = 0; h < words; h++) {
            hc_words w[BLOCKS];
            for (int b = 0; b < BLOCKS; b++)
                w[b] = make_words(turned[b][h], bits);
#pragma GCC unroll 8
            for (int j = 0; j < 32 / bits; j++)
                for (int b = 0; b < BLOCKS; b++)
                    p[b] = _mm512_fmadd_ps(_mm512_loadu_ps(x + (words * b + h) * x_step + j * 16),
                                           code_f32x16(d, &w[b], bits, j), p[b]);
        }
        for (int b = 0; b < BLOCKS; b++)
            *acc = _mm512_fmadd_ps(load_scales(args->scales[r], scale_bits, g + 16 * b, 0xffff), p[b], *acc);
    }
    return g;
}

/* `words` a group where it is known when compiled, else 0. */
INLINE void few_groups(const hc_few_floats_args *args, int bits, int n_vectors, int words, bool zeros) {
    const hc_decoder d = make_decoder(bits, args->flip, zeros ? 0 : args->zero);
    __m512 acc[HC_FEW_ROWS * HC_FEW_VECTORS];
    int64_t first = 0;
    for (int i = 0; i < HC_FEW_ROWS * n_vectors; i++)
        acc[i] = _mm512_setzero_ps();
    if (words && n_vectors == 1 && args->columns <= NEAR)
        for (int r = 0; r < HC_FEW_ROWS; r++)
            first = args->scale_bits == 4    ? add_row(args, &d, r, bits, words, 4, &acc[r])
                    : args->scale_bits == 16 ? add_row(args, &d, r, bits, words, 16, &acc[r])
                                             : add_row(args, &d, r, bits, words, 32, &acc[r]);
    add_rows(args, &d, first, bits, n_vectors, words, zeros, acc);
    for (int i = 0; i < HC_FEW_ROWS * n_vectors; i++) {
        const __m256 a = _mm256_add_ps(_mm512_castps512_ps256(acc[i]), _mm512_extractf32x8_ps(acc[i], 1));
        const __m128 b = _mm_add_ps(_mm256_castps256_ps128(a), _mm256_extractf128_ps(a, 1));
        const __m128 c = _mm_add_ps(b, _mm_movehl_ps(b, b));
        args->out[i] = _mm_cvtss_f32(_mm_add_ss(c, _mm_movehdup_ps(c)));
    }
}

INLINE void choose(const hc_few_floats_args *args, int n_vectors) {
    const int64_t words = args->group * args->bits / 32;
    if (args->bits == 4 && args->zeros[0])
        few_groups(args, 4, n_vectors, 0, true);
    else if (args->bits == 4)
        words == 2   ? few_groups(args, 4, n_vectors, 2, false)
        : words == 4 ? few_groups(args, 4, n_vectors, 4, false)
                     : few_groups(args, 4, n_vectors, 0, false);
    else if (args->zeros[0])
        few_groups(args, 8, n_vectors, 0, true);
    else
        words == 4 ? few_groups(args, 8, n_vectors, 4, false) : few_groups(args, 8, n_vectors, 0, false);
}

void hc_few_groups_avx512(const hc_few_floats_args *args) {
    if (args->n_vectors == 1)
        choose(args, 1);
    else if (args->n_vectors == 2)
        choose(args, 2);
    else
        choose(args, 4);
}
