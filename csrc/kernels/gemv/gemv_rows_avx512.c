/* gemv_rows: 64 accumulators in four registers, in the order of x.
 *
 *   32 and 16 bits  register j holds values 16 j to 16 j + 15
 *   8 bits   64 bytes of codes; register j holds byte j of the 16 words
 *   4 bits   32 bytes, twice in a register, the upper half shifted by a nibble; register q holds nibbles 2q and
 *            2q + 1 of the 8 words
 */
#include "kernels/gemv/gemv_avx512.h"

/* The four registers of the 64 codes of row r; `mask`: the bytes that exist (16 and 32 bits: the values). */
INLINE void load_codes(const hc_decoder *d, int r, const uint8_t *codes, __mmask64 mask, hc_code_kind kind, __m512 zero,
                       bool zeros, __m512 out[4]) {
    if (kind == CODES_FLOATS) {
        for (int j = 0; j < 4; j++)
            out[j] = _mm512_maskz_loadu_ps((__mmask16)(mask >> 16 * j), codes + 64 * j);
    } else if (bits_of(kind) == 16) {
        for (int j = 0; j < 4; j++) {
            const __m256i halves = _mm256_maskz_loadu_epi16((__mmask16)(mask >> 16 * j), codes + 32 * j);
            out[j] = kind == CODES_FLOAT16 ? _mm512_cvtph_ps(halves)
                                           : _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu16_epi32(halves), 16));
        }
    } else if (bits_of(kind) == 8) {
        const __m512i v = mask == ~0ull ? _mm512_loadu_si512(codes) : _mm512_maskz_loadu_epi8(mask, codes);
        for (int j = 0; j < 4; j++)
            out[j] = code_f32x16(d, r, v, kind, j);
        const __mmask64 special = kind == CODES_FLOAT8 ? special_bytes(d, v) : 0;
        for (int j = 0; special && j < 4; j++) {
            const __mmask16 lanes =
                _mm512_test_epi32_mask(_mm512_movm_epi8(special), _mm512_set1_epi32((int)(0xffu << 8 * j)));
            out[j] = _mm512_mask_or_ps(out[j], lanes, out[j], _mm512_set1_ps(INFINITY));
        }
    } else {
        const __m256i half = mask == ~0ull ? _mm256_loadu_si256((const __m256i *)codes)
                                           : _mm256_maskz_loadu_epi8((__mmask32)mask, codes);
        const __m512i shifts = _mm512_setr_epi32(0, 0, 0, 0, 0, 0, 0, 0, 4, 4, 4, 4, 4, 4, 4, 4);
        const __m512i words = _mm512_srlv_epi32(_mm512_broadcast_i64x4(half), shifts);
        for (int j = 0; j < 4; j++)
            out[j] = code_f32x16(d, r, words, kind, 2 * j);
    }
    for (int j = 0; zeros && j < 4; j++)
        out[j] = _mm512_sub_ps(out[j], zero);
}

/* Mask of the lanes of register j whose column is below n, in a block of 64. */
INLINE __mmask16 lanes_below(hc_code_kind kind, int j, int64_t n) {
    const __m512i lanes = _mm512_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15);
    const __m512i nibbles = _mm512_setr_epi32(0, 8, 16, 24, 32, 40, 48, 56, 1, 9, 17, 25, 33, 41, 49, 57);
    const __m512i column = bits_of(kind) >= 16  ? _mm512_add_epi32(lanes, _mm512_set1_epi32(16 * j))
                           : bits_of(kind) == 8 ? _mm512_add_epi32(_mm512_slli_epi32(lanes, 2), _mm512_set1_epi32(j))
                                                : _mm512_add_epi32(nibbles, _mm512_set1_epi32(2 * j));
    return _mm512_cmplt_epi32_mask(column, _mm512_set1_epi32((int)n));
}

/* Folds in the stated order: k + 32, + 16, ... is in another quarter, lane or register. */
INLINE float fold(const __m512 acc[4], hc_code_kind kind) {
    __m512 a[4];
    if (bits_of(kind) >= 16) {
        const __m512 b = _mm512_add_ps(_mm512_add_ps(acc[0], acc[2]), _mm512_add_ps(acc[1], acc[3]));
        const __m512 c = _mm512_add_ps(b, _mm512_shuffle_f32x4(b, b, 0x4e));
        const __m512 e = _mm512_add_ps(c, _mm512_shuffle_f32x4(c, c, 0xb1));
        const __m512 f = _mm512_add_ps(e, _mm512_permute_ps(e, 0x4e));
        return _mm512_cvtss_f32(_mm512_add_ps(f, _mm512_permute_ps(f, 0xb1)));
    }
    for (int j = 0; j < 4; j++) {
        a[j] = bits_of(kind) == 8 ? _mm512_add_ps(acc[j], _mm512_shuffle_f32x4(acc[j], acc[j], 0x4e)) : acc[j];
        a[j] = _mm512_add_ps(a[j], _mm512_shuffle_f32x4(a[j], a[j], 0xb1));
        a[j] = _mm512_add_ps(a[j], _mm512_permute_ps(a[j], 0x4e));
        a[j] = _mm512_add_ps(a[j], _mm512_permute_ps(a[j], 0xb1));
    }
    const __m512 sum = _mm512_add_ps(_mm512_add_ps(a[0], a[2]), _mm512_add_ps(a[1], a[3]));
    if (bits_of(kind) == 8)
        return _mm512_cvtss_f32(sum);
    return _mm512_cvtss_f32(_mm512_add_ps(sum, _mm512_shuffle_f32x4(sum, sum, 0x4e)));
}

/* Rows [first, first + n_rows); n_rows x n_vectors is 4. */
INLINE void gemv_rows(const hc_gemv_floats_args *args, const hc_decoder *d, int first, hc_code_kind kind, int n_rows,
                      int n_vectors, bool zeros) {
    const int64_t step = 8 * bits_of(kind);
    const float *x = args->x;
    __m512 acc[4][4], zero[4];
    for (int i = 0; i < 4; i++)
        for (int j = 0; j < 4; j++)
            acc[i][j] = _mm512_setzero_ps();
    for (int r = 0; r < n_rows; r++)
        zero[r] = _mm512_set1_ps(zeros ? args->zeros[first + r][0] : 0);
    int64_t left = args->columns, place = 0;
    for (; left >= 64; left -= 64, place += step, x += 64 * n_vectors)
        for (int r = 0; r < n_rows; r++) {
            __m512 codes[4];
            for (int64_t line = 0; line < step; line += 64)
                _mm_prefetch(args->next[first + r] + place + line, _MM_HINT_T1);
            load_codes(d, first + r, args->codes[first + r] + place, ~0ull, kind, zero[r], zeros, codes);
            for (int v = 0; v < n_vectors; v++)
                for (int j = 0; j < 4; j++)
                    acc[r * n_vectors + v][j] =
                        _mm512_fmadd_ps(_mm512_loadu_ps(x + (v * 4 + j) * 16), codes[j], acc[r * n_vectors + v][j]);
        }
    for (int r = 0; r < n_rows && left > 0; r++) {
        const int64_t units = bits_of(kind) == 4 ? (left + 1) / 2 : left;
        __m512 codes[4];
        load_codes(d, first + r, args->codes[first + r] + place, (1ull << units) - 1, kind, zero[r], zeros, codes);
        for (int v = 0; v < n_vectors; v++)
            for (int j = 0; j < 4; j++)
                acc[r * n_vectors + v][j] =
                    _mm512_mask3_fmadd_ps(_mm512_loadu_ps(x + (v * 4 + j) * 16), codes[j], acc[r * n_vectors + v][j],
                                          lanes_below(kind, j, left));
    }
    for (int i = 0; i < 4; i++)
        args->out[first * n_vectors + i] = fold(acc[i], kind);
}

INLINE void choose(const hc_gemv_floats_args *args, int n_rows, int n_vectors) {
    const hc_decoder d = make_decoder(args);
    const hc_code_kind kind = code_kind(args, &d);
    for (int first = 0; first < HC_GEMV_ROWS; first += n_rows)
        if (kind == CODES_FLOATS)
            gemv_rows(args, &d, first, CODES_FLOATS, n_rows, n_vectors, false);
        else if (kind == CODES_FLOAT8)
            gemv_rows(args, &d, first, CODES_FLOAT8, n_rows, n_vectors, false);
        else if (kind == CODES_FLOAT16)
            gemv_rows(args, &d, first, CODES_FLOAT16, n_rows, n_vectors, false);
        else if (kind == CODES_BFLOAT16)
            gemv_rows(args, &d, first, CODES_BFLOAT16, n_rows, n_vectors, false);
        else if (kind == CODES_LONG)
            gemv_rows(args, &d, first, CODES_LONG, n_rows, n_vectors, false);
        else if (kind == CODES_SHORT)
            args->zeros[0] ? gemv_rows(args, &d, first, CODES_SHORT, n_rows, n_vectors, true)
                           : gemv_rows(args, &d, first, CODES_SHORT, n_rows, n_vectors, false);
        else
            args->zeros[0] ? gemv_rows(args, &d, first, CODES_BYTES, n_rows, n_vectors, true)
                           : gemv_rows(args, &d, first, CODES_BYTES, n_rows, n_vectors, false);
}

void hc_gemv_rows_avx512(const hc_gemv_floats_args *args) {
    if (args->n_vectors == 1)
        choose(args, 4, 1);
    else if (args->n_vectors == 2)
        choose(args, 2, 2);
    else
        choose(args, 1, 4);
}

INLINE bool is_short(int64_t group) { return group == 16 || group == 32; }

/* The numbers of the groups of 64 codes. 4 bits: the lanes of each word, for all registers; 8 bits: register j has
 * number j >> shift. */
typedef struct {
    __m512i lanes;
    int shift;
} hc_group_places;

INLINE hc_group_places group_places(int bits, int64_t group) {
    const __m512i words = _mm512_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7, 0, 1, 2, 3, 4, 5, 6, 7);
    const int log2 = is_short(group) ? __builtin_ctz((unsigned)group) : 6;
    return (hc_group_places){bits == 4 ? _mm512_srli_epi32(words, (unsigned)log2 - 3) : words, log2 - 4};
}

INLINE __m512 numbers_f32x16(const float *numbers, const hc_group_places *places, int bits, int j) {
    if (bits == 8)
        return _mm512_set1_ps(numbers[j >> places->shift]);
    return _mm512_permutexvar_ps(places->lanes, _mm512_castps128_ps512(_mm_loadu_ps(numbers)));
}

/* Nibble 2 j of each word: mantissa bits of 2^(23 - bit), minus that; by a table where float32 has no such bits. Both,
 * because they use different units of a processor. */
INLINE __m512 nibbles_f32x16(__m512i words, int j) {
    if (j == 3) /* vpermps reads the low 4 bits */
        return _mm512_permutexvar_ps(_mm512_srli_epi32(words, 24),
                                     _mm512_setr_ps(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15));
    const __m512i exponent = _mm512_set1_epi32((150 - 8 * j) << 23);
    const __m512i field = /* (words & mask) | exponent */
        _mm512_ternarylogic_epi32(words, _mm512_set1_epi32(15 << 8 * j), exponent, 0xea);
    return _mm512_sub_ps(_mm512_castsi512_ps(field), _mm512_castsi512_ps(exponent));
}

/* The values of 64 codes; `mask`: the bytes of codes that exist. */
INLINE void load_values(const uint8_t *codes, __mmask64 mask, const float *scales, const float *minima,
                        const hc_group_places *places, int bits, __m512 out[4]) {
    const __m512i shifts = _mm512_setr_epi32(0, 0, 0, 0, 0, 0, 0, 0, 4, 4, 4, 4, 4, 4, 4, 4);
    __m512i words = _mm512_setzero_si512();
    if (bits == 4) {
        const __m256i half = mask == ~0ull ? _mm256_loadu_si256((const __m256i *)codes)
                                           : _mm256_maskz_loadu_epi8((__mmask32)mask, codes);
        words = _mm512_srlv_epi32(_mm512_broadcast_i64x4(half), shifts);
    }
#pragma GCC unroll 4
    for (int j = 0; j < 4; j++) {
        __m512 c;
        if (bits == 4) {
            c = nibbles_f32x16(words, j);
        } else {
            const __m128i bytes = mask == ~0ull ? _mm_loadu_si128((const __m128i *)(codes + 16 * j))
                                                : _mm_maskz_loadu_epi8((__mmask16)(mask >> 16 * j), codes + 16 * j);
            c = _mm512_cvtepi32_ps(_mm512_cvtepu8_epi32(bytes));
        }
        out[j] = _mm512_fmadd_ps(numbers_f32x16(scales, places, bits, j), c, numbers_f32x16(minima, places, bits, j));
    }
}

/* A block of `left` codes from k on, whose first group is g. */
INLINE void add_values(const hc_gemv_floats_args *args, int64_t k, int64_t g, int64_t left,
                       const hc_group_places *places, int first, int bits, int n_rows, int n_vectors,
                       __m512 acc[4][4]) {
    const __mmask64 mask = left == 64 ? ~0ull : (1ull << (bits == 4 ? (left + 1) / 2 : left)) - 1;
    const float *x = args->x + k * n_vectors;
#pragma GCC unroll 4
    for (int r = 0; r < n_rows; r++) {
        __m512 values[4];
        _mm_prefetch(args->next[first + r] + k * bits / 8, _MM_HINT_T1);
        load_values(args->codes[first + r] + k * bits / 8, mask,
                    (const float *)(const void *)args->scales[first + r] + g, args->minima[first + r] + g, places, bits,
                    values);
#pragma GCC unroll 4
        for (int v = 0; v < n_vectors; v++)
#pragma GCC unroll 4
            for (int j = 0; j < 4; j++) {
                __m512 *sum = &acc[r * n_vectors + v][j];
                const __m512 x_f32x16 = _mm512_loadu_ps(x + (v * 4 + j) * 16);
                const __mmask16 exist =
                    left == 64 ? 0xffff : lanes_below(bits == 4 ? CODES_SHORT : CODES_FLOATS, j, left);
                *sum = _mm512_mask3_fmadd_ps(x_f32x16, values[j], *sum, exist);
            }
    }
}

/* Rows [first, first + n_rows); n_rows x n_vectors is 4. */
INLINE void gemv_values(const hc_gemv_floats_args *args, int first, int bits, int n_rows, int n_vectors) {
    const hc_group_places places = group_places(bits, args->group);
    const int64_t step = is_short(args->group) ? 64 / args->group : 1; /* groups after `blocks` blocks */
    const int64_t blocks = is_short(args->group) ? 1 : (args->group + 63) / 64;
    __m512 acc[4][4];
    for (int i = 0; i < 4; i++)
        for (int j = 0; j < 4; j++)
            acc[i][j] = _mm512_setzero_ps();
    int64_t k = 0, g = 0, next = 64 * blocks; /* the column at which g changes */
    for (; k + 64 <= args->columns; k += 64) {
        if (k == next) {
            next += 64 * blocks;
            g += step;
        }
        add_values(args, k, g, 64, &places, first, bits, n_rows, n_vectors, acc);
    }
    if (k < args->columns)
        add_values(args, k, k == next ? g + step : g, args->columns - k, &places, first, bits, n_rows, n_vectors, acc);
    for (int i = 0; i < 4; i++)
        args->out[first * n_vectors + i] = fold(acc[i], bits == 4 ? CODES_SHORT : CODES_FLOATS);
}

INLINE void values_of_rows(const hc_gemv_floats_args *args, int n_rows, int n_vectors) {
    for (int first = 0; first < HC_GEMV_ROWS; first += n_rows)
        args->bits == 4 ? gemv_values(args, first, 4, n_rows, n_vectors)
                        : gemv_values(args, first, 8, n_rows, n_vectors);
}

void hc_gemv_values_avx512(const hc_gemv_floats_args *args) {
    if (args->n_vectors == 1)
        values_of_rows(args, 4, 1);
    else if (args->n_vectors == 2)
        values_of_rows(args, 2, 2);
    else
        values_of_rows(args, 1, 4);
}
