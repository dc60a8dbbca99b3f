/* few_groups: 16 groups in lanes; each word's codes, low bits first, are one step of the 16 chains. */
#include "kernels/few_avx512.h"
#include "kernels/kernel.h"

/* Blocks of one row side by side; values of x that L1 holds beside all else; bytes prefetched ahead: Zen 4, 2026-11. */
enum { BLOCKS = 4, NEAR = 6144, AHEAD = 4096 };

/* Scales g .. g + 15 as float32, g a multiple of 16; those outside of the mask are not touched. */
INLINE __m512 load_scales(const uint8_t *scales, int bits, int64_t g, __mmask16 mask) {
    const uint8_t *from = scales + g * bits / 8;
    if (bits == 32)
        return _mm512_maskz_loadu_ps(mask, from);
    if (bits == 16)
        return _mm512_cvtph_ps(_mm256_maskz_loadu_epi16(mask, from));
    const __m512i lanes = _mm512_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15);
    const __mmask16 exist = (__mmask16)_pext_u32(mask, 0x5555); /* the mask has no gaps */
    const __m128i bytes = mask == 0xffff ? _mm_loadl_epi64((const __m128i *)from) : _mm_maskz_loadu_epi8(exist, from);
    const __m512i words = _mm512_permutexvar_epi32(_mm512_srli_epi32(lanes, 3), _mm512_castsi128_si512(bytes));
    /* vpsrlvd wants the shift modulo 32, vpermps reads the low four bits */
    const __m512i shifts = _mm512_and_si512(_mm512_slli_epi32(lanes, 2), _mm512_set1_epi32(28));
    return _mm512_permutexvar_ps(_mm512_srlv_epi32(words, shifts), _mm512_cvtepi32_ps(lanes));
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
        if (words) { /* stays in registers */
            __m512i turned[4][HC_FEW_ROWS];
            for (int r = 0; r < n_rows; r++) {
                __m512i block[4];
                turn_block(args->codes[r] + place, words, groups, block);
                for (int h = 0; h < words; h++)
                    turned[h][r] = block[h];
            }
#pragma GCC unroll 4
            for (int h = 0; h < words; h++)
                add_word(d, turned[h], zero, x + h * x_step, p, bits, n_rows, n_vectors, zeros);
        } else {
            __m512i turned[HC_FEW_ROWS][CHUNK], word[HC_FEW_ROWS];
            for (int64_t start = 0; start < group_words; start += CHUNK) {
                const int64_t n = hc_min(group_words - start, CHUNK);
                for (int r = 0; r < n_rows; r++)
                    turn_chunk(args->codes[r] + place, group_words, start, n, groups, turned[r]);
                for (int64_t h = 0; h < n; h++) {
                    for (int r = 0; r < n_rows; r++)
                        word[r] = turned[r][h];
                    add_word(d, word, zero, x + (start + h) * x_step, p, bits, n_rows, n_vectors, zeros);
                }
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
        _mm_prefetch(args->scales[r] + g * scale_bits / 8 + AHEAD / 2, _MM_HINT_T1);
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
