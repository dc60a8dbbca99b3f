/* gemv_rows: 64 accumulators in four registers, in the order of x.
 *
 *   32 bits  register j holds values 16 j to 16 j + 15
 *   8 bits   64 bytes of codes; register j holds byte j of the 16 words
 *   4 bits   32 bytes, twice in a register, the upper half shifted by a nibble; register q holds nibbles 2q and
 *            2q + 1 of the 8 words
 */
#include "kernels/gemv/gemv_avx512.h"

/* The four registers of the 64 codes of row r; `mask`: the bytes that exist (32 bits: the values). */
INLINE void load_codes(const hc_decoder *d, int r, const uint8_t *codes, __mmask64 mask, hc_code_kind kind, __m512 zero,
                       bool zeros, __m512 out[4]) {
    if (kind == CODES_FLOATS) {
        for (int j = 0; j < 4; j++)
            out[j] = _mm512_maskz_loadu_ps((__mmask16)(mask >> 16 * j), codes + 64 * j);
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
    const __m512i column = kind == CODES_FLOATS ? _mm512_add_epi32(lanes, _mm512_set1_epi32(16 * j))
                           : bits_of(kind) == 8 ? _mm512_add_epi32(_mm512_slli_epi32(lanes, 2), _mm512_set1_epi32(j))
                                                : _mm512_add_epi32(nibbles, _mm512_set1_epi32(2 * j));
    return _mm512_cmplt_epi32_mask(column, _mm512_set1_epi32((int)n));
}

/* Folds in the stated order: k + 32, + 16, ... is in another quarter, lane or register. */
INLINE float fold(const __m512 acc[4], hc_code_kind kind) {
    __m512 a[4];
    if (kind == CODES_FLOATS) {
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
