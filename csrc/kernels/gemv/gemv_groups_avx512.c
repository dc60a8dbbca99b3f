/* gemv_groups: 16 groups in lanes, so words of 16 groups are transposed from [group][word] to [word][group]. Each
 * word's codes, low bits first, are one step of the 16 chains. Four rows are interleaved, because a chain waits for
 * itself, and every load of x is used for all four. Of up to four groups, those of all four rows share a register, and of
 * up to eight groups those of two rows.
 */
#include "kernels/gemv/gemv_avx512.h"

/* The same for n words from `first` on of groups of any length. Not inlined, since it is the same for all codes. */
static __attribute__((noinline)) void transpose_chunk(const uint8_t *codes, int64_t words, int64_t first, int64_t n,
                                                      int64_t groups, __m512i *out) {
    if (words == 2) {
        transpose_block(codes, 2, groups, out);
    } else if (words == 4) {
        transpose_block(codes, 4, groups, out);
    } else if (words == 8) {
        transpose_block(codes, 8, groups, out);
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

/* p = fmaf(x, c, p) for the codes of a word of every row. */
INLINE void add_word(const hc_decoder *d, const __m512i words[], const __m512 zero[], const float *x, __m512 p[],
                     __mmask64 special[], hc_code_kind kind, int n_vectors, bool zeros) {
    for (int r = 0; r < HC_GEMV_ROWS && kind == CODES_FLOAT8; r++)
        special[r] = _kor_mask64(special[r], special_bytes(d, words[r]));
#pragma GCC unroll 8
    for (int j = 0; j < 32 / bits_of(kind); j++) {
        __m512 x_f32x16[HC_GEMV_VECTORS];
        for (int v = 0; v < n_vectors; v++)
            x_f32x16[v] = _mm512_loadu_ps(x + (j * n_vectors + v) * 16);
        for (int r = 0; r < HC_GEMV_ROWS; r++) {
            __m512 c = code_f32x16(d, r, words[r], kind, j);
            if (zeros)
                c = _mm512_sub_ps(c, zero[r]);
            for (int v = 0; v < n_vectors; v++)
                p[r * n_vectors + v] = _mm512_fmadd_ps(x_f32x16[v], c, p[r * n_vectors + v]);
        }
    }
}

/* Adds the chains of up to 16 groups from g on, times their scales. special: bytes of each row's words that are infinity
 * or NaN. */
INLINE void add_groups(const hc_gemv_floats_args *args, int64_t g, int64_t groups, __m512 p[],
                       const __mmask64 special[], __m512 acc[], hc_code_kind kind, int n_vectors) {
    const __mmask16 mask = (__mmask16)((1u << groups) - 1);
    /* Codes after the last column meet an x of +0: only a chain that is then 0 or NaN may have been another one. */
    const int64_t last = g + groups - 1;
    const __mmask16 tail = (last + 1) * args->group > args->columns ? (__mmask16)(1u << last % 16) : 0;
    for (int r = 0; r < HC_GEMV_ROWS; r++) {
        const __m512 scale = load_scales(args->scales[r], args->scale_bits, g, mask);
        const __m512i special_words = _mm512_movm_epi8(special[r]);
        unsigned by_definition = 0;
        if (kind == CODES_FLOAT8)
            by_definition = _mm512_test_epi32_mask(special_words, special_words);
        for (int v = 0; v < n_vectors; v++) {
            const int i = r * n_vectors + v;
            const __mmask16 unknown = _mm512_mask_cmp_ps_mask(tail, p[i], _mm512_setzero_ps(), _CMP_EQ_UQ);
            for (unsigned left = by_definition | unknown; left; left &= left - 1)
                p[i] = _mm512_mask_mov_ps(p[i], (__mmask16)(left & -left),
                                          _mm512_set1_ps(hc_gemv_chain(args, r, v, g + (int64_t)__builtin_ctz(left))));
            acc[i] = _mm512_mask3_fmadd_ps(scale, p[i], acc[i], mask);
        }
    }
}

/* x of a register that has the groups of `share` rows. */
INLINE __m512 load_shared(const float *x, int share) {
    return share == 4   ? _mm512_broadcast_f32x4(_mm_loadu_ps(x))
           : share == 2 ? _mm512_broadcast_f32x8(_mm256_loadu_ps(x))
                        : _mm512_loadu_ps(x);
}

/* The lanes of row r of a register that it shares, from lane 0 on. */
INLINE __m512 lanes_of(__m512 shared, int r, int share) {
    const __m512i lanes = _mm512_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15);
    return _mm512_permutexvar_ps(_mm512_add_epi32(lanes, _mm512_set1_epi32(r % share * (16 / share))), shared);
}

/* p of up to 16 / share groups from `place` on, with the groups of `share` rows in one register. of_rows: bytes of each
 * row's words that are infinity or NaN. */
INLINE void share_groups(const hc_gemv_floats_args *args, const hc_decoder *d, int64_t place, int64_t groups,
                         const float *x, const __m512 zero[], __m512 p[], __mmask64 of_rows[], hc_code_kind kind,
                         int n_vectors, int share, bool zeros) {
    const int64_t words = args->group * bits_of(kind) / 32;
    const int n = HC_GEMV_ROWS / share, lanes = 16 / share;
    const __m512i steps = _mm512_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15);
    __m512 sum[HC_GEMV_ROWS * HC_GEMV_VECTORS], less[HC_GEMV_ROWS];
    __mmask64 special[HC_GEMV_ROWS] = {0};
#pragma GCC unroll 8
    for (int i = 0; i < n * n_vectors; i++)
        sum[i] = _mm512_setzero_ps();
    for (int i = 0; zeros && i < n; i++) {
        less[i] = zero[i * share];
        for (int r = 1; r < share; r++) {
            const __m512i from = _mm512_sub_epi32(steps, _mm512_set1_epi32(r * lanes));
            less[i] = _mm512_mask_permutexvar_ps(less[i], (__mmask16)(((1u << lanes) - 1) << (r * lanes)), from,
                                                 zero[i * share + r]);
        }
    }
    for (int64_t start = 0; start < words; start += CHUNK) {
        const int64_t left = hc_min(words - start, CHUNK);
        const __mmask16 mask = (__mmask16)(0xffffu >> (16 - left));
        __m512i word[HC_GEMV_ROWS][CHUNK];
        for (int i = 0; i < n; i++) {
#pragma GCC unroll 16
            for (int j = 0; j < CHUNK; j++) {
                const uint8_t *codes = args->codes[i * share + j / lanes] + place;
                word[i][j] = j % lanes < groups
                                 ? _mm512_maskz_loadu_epi32(mask, codes + 4 * (j % lanes * words + start))
                                 : _mm512_setzero_si512();
            }
            part_words(word[i], CHUNK);
        }
        for (int64_t h = 0; h < left; h++) {
            for (int i = 0; i < n && kind == CODES_FLOAT8; i++)
                special[i] = _kor_mask64(special[i], special_bytes(d, word[i][h]));
            const float *from = x + (start + h) * (32 / bits_of(kind)) * n_vectors * 16;
#pragma GCC unroll 8
            for (int j = 0; j < 32 / bits_of(kind); j++)
                for (int i = 0; i < n; i++) {
                    __m512 c = code_f32x16(d, i, word[i][h], kind, j);
                    if (zeros)
                        c = _mm512_sub_ps(c, less[i]);
                    for (int v = 0; v < n_vectors; v++)
                        sum[i * n_vectors + v] = _mm512_fmadd_ps(load_shared(from + (j * n_vectors + v) * 16, share), c,
                                                                 sum[i * n_vectors + v]);
                }
        }
    }
    for (int r = 0; r < HC_GEMV_ROWS; r++) {
        of_rows[r] = special[r / share] >> (4 * (r % share) * lanes) & ((1ull << 4 * groups) - 1);
        for (int v = 0; v < n_vectors; v++)
            p[r * n_vectors + v] = lanes_of(sum[r / share * n_vectors + v], r, share);
    }
}

/* True if rows share a register: they have one table, and the groups are long enough to repay the copies (Zen 4,
 * 2026-11). */
INLINE bool may_share(const hc_gemv_floats_args *args, int64_t groups, hc_code_kind kind) {
    const int64_t words = args->group * bits_of(kind) / 32;
    bool is_one = words >= (groups <= 4 ? 4 : 8);
    for (int r = 1; r < HC_GEMV_ROWS && kind == CODES_LONG; r++)
        is_one = is_one && args->table[r] == args->table[0];
    return groups <= 8 && is_one;
}

/* The last up to 8 groups, from g on. Not inlined: whole blocks of groups would have fewer registers. */
INLINE void share_last(const hc_gemv_floats_args *args, const hc_decoder *d, int64_t g, __m512 acc[], hc_code_kind kind,
                       int n_vectors, int share, bool zeros) {
    const int64_t words = args->group * bits_of(kind) / 32, groups = args->groups - g, place = 4 * g * words;
    const __mmask16 mask = (__mmask16)((1u << groups) - 1);
    const float *x = args->x + g / 16 * words * (32 / bits_of(kind) * n_vectors * 16);
    __m512 p[HC_GEMV_ROWS * HC_GEMV_VECTORS], zero[HC_GEMV_ROWS];
    __mmask64 special[HC_GEMV_ROWS];
    for (int r = 0; r < HC_GEMV_ROWS; r++) {
        for (int64_t byte = 0; byte < 4 * groups * words; byte += 64)
            _mm_prefetch(args->next[r] + place + byte, _MM_HINT_T1);
        zero[r] = zeros ? _mm512_maskz_loadu_ps(mask, args->zeros[r] + g) : _mm512_setzero_ps();
    }
    share_groups(args, d, place, groups, x, zero, p, special, kind, n_vectors, share, zeros);
    add_groups(args, g, groups, p, special, acc, kind, n_vectors);
}
INLINE void share_kind(const hc_gemv_floats_args *args, const hc_decoder *d, int64_t g, __m512 acc[], hc_code_kind kind,
                       int n_vectors, bool zeros) {
    args->groups - g <= 4 ? share_last(args, d, g, acc, kind, n_vectors, 4, zeros)
                          : share_last(args, d, g, acc, kind, n_vectors, 2, zeros);
}
static __attribute__((noinline)) void share_any(const hc_gemv_floats_args *args, const hc_decoder *d, int64_t g,
                                                __m512 acc[], hc_code_kind kind) {
    const bool zeros = args->zeros[0];
#define OF(kind, zeros)                                                                                                \
    (args->n_vectors == 1   ? share_kind(args, d, g, acc, kind, 1, zeros)                                              \
     : args->n_vectors == 2 ? share_kind(args, d, g, acc, kind, 2, zeros)                                              \
                            : share_kind(args, d, g, acc, kind, 4, zeros))
    kind == CODES_FLOATS   ? OF(CODES_FLOATS, false)
    : kind == CODES_FLOAT8 ? OF(CODES_FLOAT8, false)
    : kind == CODES_LONG   ? OF(CODES_LONG, false)
    : kind == CODES_SHORT  ? (zeros ? OF(CODES_SHORT, true) : OF(CODES_SHORT, false))
                           : (zeros ? OF(CODES_BYTES, true) : OF(CODES_BYTES, false));
#undef OF
}

/* A block of 16 groups from g on; `groups` of them exist. `words`: words per group if constant, otherwise 0. */
INLINE void add_block(const hc_gemv_floats_args *args, const hc_decoder *d, int64_t g, int64_t groups, __m512 acc[],
                      hc_code_kind kind, int words, int n_vectors, bool zeros) {
    const int bits = bits_of(kind);
    const int64_t group_words = words ? words : args->group * bits / 32, x_step = 32 / bits * n_vectors * 16;
    const int64_t place = 4 * g * group_words;
    const __mmask16 mask = (__mmask16)((1u << groups) - 1);
    const float *x = args->x + g / 16 * group_words * x_step;
    __m512 p[HC_GEMV_ROWS * HC_GEMV_VECTORS], zero[HC_GEMV_ROWS];
    __mmask64 special[HC_GEMV_ROWS] = {0};
    for (int r = 0; r < HC_GEMV_ROWS; r++) {
        for (int64_t line = 0; line < group_words; line++)
            _mm_prefetch(args->next[r] + place + 64 * line, _MM_HINT_T1);
        zero[r] = zeros ? _mm512_maskz_loadu_ps(mask, args->zeros[r] + g) : _mm512_setzero_ps();
    }
#pragma GCC unroll 16
    for (int i = 0; i < HC_GEMV_ROWS * n_vectors; i++)
        p[i] = _mm512_setzero_ps();
    if (words) {
        __m512i transposed[8][HC_GEMV_ROWS];
        for (int r = 0; r < HC_GEMV_ROWS; r++) {
            __m512i block[8];
            transpose_block(args->codes[r] + place, words, groups, block);
#pragma GCC unroll 8
            for (int h = 0; h < words; h++)
                transposed[h][r] = block[h];
        }
        if (n_vectors == 1) {
#pragma GCC unroll 8
            for (int h = 0; h < words; h++)
                add_word(d, transposed[h], zero, x + h * x_step, p, special, kind, 1, zeros);
        } else { /* unrolled, it would lose registers */
#pragma GCC unroll 1
            for (int h = 0; h < words; h++)
                add_word(d, transposed[h], zero, x + h * x_step, p, special, kind, n_vectors, zeros);
        }
    } else {
        __m512i transposed[HC_GEMV_ROWS][CHUNK], word[HC_GEMV_ROWS];
        for (int64_t start = 0; start < group_words; start += CHUNK) {
            const int64_t n = hc_min(group_words - start, CHUNK);
            for (int r = 0; r < HC_GEMV_ROWS; r++)
                transpose_chunk(args->codes[r] + place, group_words, start, n, groups, transposed[r]);
            for (int64_t h = 0; h < n; h++) {
                for (int r = 0; r < HC_GEMV_ROWS; r++)
                    word[r] = transposed[r][h];
                add_word(d, word, zero, x + (start + h) * x_step, p, special, kind, n_vectors, zeros);
            }
        }
    }
    add_groups(args, g, groups, p, special, acc, kind, n_vectors);
}

INLINE float fold(__m512 acc) {
    const __m256 a = _mm256_add_ps(_mm512_castps512_ps256(acc), _mm512_extractf32x8_ps(acc, 1));
    const __m128 b = _mm_add_ps(_mm256_castps256_ps128(a), _mm256_extractf128_ps(a, 1));
    const __m128 c = _mm_add_ps(b, _mm_movehl_ps(b, b));
    return _mm_cvtss_f32(_mm_add_ss(c, _mm_movehdup_ps(c)));
}

/* The whole blocks of groups of `words` words, if the groups have as many; returns the next group. */
INLINE int64_t add_whole(const hc_gemv_floats_args *args, const hc_decoder *d, __m512 acc[], hc_code_kind kind,
                         int words, int n_vectors) {
    int64_t g = 0;
    for (; args->group * bits_of(kind) == 32 * words && (g + 16) * args->group <= args->columns; g += 16)
        add_block(args, d, g, 16, acc, kind, words, n_vectors, false);
    return g;
}

INLINE void gemv_groups(const hc_gemv_floats_args *args, const hc_decoder *d, hc_code_kind kind, int n_vectors,
                        bool zeros) {
    __m512 acc[HC_GEMV_ROWS * HC_GEMV_VECTORS];
    int64_t g = 0;
#pragma GCC unroll 16
    for (int i = 0; i < HC_GEMV_ROWS * n_vectors; i++)
        acc[i] = _mm512_setzero_ps();
    if (kind == CODES_LONG)
        g = add_whole(args, d, acc, kind, 8, n_vectors);
    else if (kind == CODES_SHORT && !zeros)
        g = args->group == 16 ? add_whole(args, d, acc, kind, 2, n_vectors)
                              : add_whole(args, d, acc, kind, 4, n_vectors);
    else if (kind == CODES_BYTES && !zeros)
        g = add_whole(args, d, acc, kind, 4, n_vectors);
    const int64_t last = args->groups % 16, whole = args->groups - (may_share(args, last, kind) ? last : 0);
    for (; g < whole; g += 16)
        add_block(args, d, g, hc_min(whole - g, 16), acc, kind, 0, n_vectors, zeros);
    if (g < args->groups) {
        __m512 sums[HC_GEMV_ROWS * HC_GEMV_VECTORS]; /* acc stays in registers */
        for (int i = 0; i < HC_GEMV_ROWS * n_vectors; i++)
            sums[i] = acc[i];
        share_any(args, d, g, sums, kind);
        for (int i = 0; i < HC_GEMV_ROWS * n_vectors; i++)
            args->out[i] = fold(sums[i]);
        return;
    }
#pragma GCC unroll 16
    for (int i = 0; i < HC_GEMV_ROWS * n_vectors; i++)
        args->out[i] = fold(acc[i]);
}

INLINE void choose(const hc_gemv_floats_args *args, int n_vectors) {
    const hc_decoder d = make_decoder(args);
    const hc_code_kind kind = code_kind(args, &d);
    if (kind == CODES_FLOATS)
        gemv_groups(args, &d, CODES_FLOATS, n_vectors, false);
    else if (kind == CODES_FLOAT8)
        gemv_groups(args, &d, CODES_FLOAT8, n_vectors, false);
    else if (kind == CODES_LONG)
        gemv_groups(args, &d, CODES_LONG, n_vectors, false);
    else if (kind == CODES_SHORT)
        args->zeros[0] ? gemv_groups(args, &d, CODES_SHORT, n_vectors, true)
                       : gemv_groups(args, &d, CODES_SHORT, n_vectors, false);
    else
        args->zeros[0] ? gemv_groups(args, &d, CODES_BYTES, n_vectors, true)
                       : gemv_groups(args, &d, CODES_BYTES, n_vectors, false);
}

void hc_gemv_groups_avx512(const hc_gemv_floats_args *args) {
    if (args->n_vectors == 1)
        choose(args, 1);
    else if (args->n_vectors == 2)
        choose(args, 2);
    else
        choose(args, 4);
}
