/* few_rows: 64 accumulators in four registers, in the order of x.
 *
 *   8 bits   64 bytes of codes; register j holds byte j of the 16 words
 *   4 bits   32 bytes, twice in a register, the upper half shifted by a nibble; register q holds nibbles 2q and
 *            2q + 1 of the 8 words
 */
#include "kernels/few_avx512.h"
#include "kernels/kernel.h"

/* The four registers of 64 codes; `mask` names the bytes that exist. */
INLINE void load_codes(const hc_decoder *d, const uint8_t *codes, __mmask64 mask, int bits, __m512 zero, bool zeros,
                       __m512 out[4]) {
    if (bits == 8) {
        const __m512i v = mask == ~0ull ? _mm512_loadu_si512(codes) : _mm512_maskz_loadu_epi8(mask, codes);
        const hc_words words = make_words(v, 8);
        for (int j = 0; j < 4; j++)
            out[j] = code_f32x16(d, &words, 8, j);
    } else {
        const __m256i half = mask == ~0ull ? _mm256_loadu_si256((const __m256i *)codes)
                                           : _mm256_maskz_loadu_epi8((__mmask32)mask, codes);
        const __m512i shifts = _mm512_setr_epi32(0, 0, 0, 0, 0, 0, 0, 0, 4, 4, 4, 4, 4, 4, 4, 4);
        const hc_words words = make_words(_mm512_srlv_epi32(_mm512_broadcast_i64x4(half), shifts), 4);
        for (int j = 0; j < 4; j++)
            out[j] = code_f32x16(d, &words, 4, 2 * j);
    }
    for (int j = 0; zeros && j < 4; j++)
        out[j] = _mm512_sub_ps(out[j], zero);
}

/* The stated order by what stands where: k + 32, + 16, ... is another quarter, lane or register. */
INLINE float fold(const __m512 acc[4], int bits) {
    __m512 a[4];
    for (int j = 0; j < 4; j++) {
        a[j] = bits == 8 ? _mm512_add_ps(acc[j], _mm512_shuffle_f32x4(acc[j], acc[j], 0x4e)) : acc[j];
        a[j] = _mm512_add_ps(a[j], _mm512_shuffle_f32x4(a[j], a[j], 0xb1));
        a[j] = _mm512_add_ps(a[j], _mm512_permute_ps(a[j], 0x4e));
        a[j] = _mm512_add_ps(a[j], _mm512_permute_ps(a[j], 0xb1));
    }
    const __m512 sum = _mm512_add_ps(_mm512_add_ps(a[0], a[2]), _mm512_add_ps(a[1], a[3]));
    if (bits == 8)
        return _mm512_cvtss_f32(sum);
    return _mm512_cvtss_f32(_mm512_add_ps(sum, _mm512_shuffle_f32x4(sum, sum, 0x4e)));
}

/* Rows [first, first + n_rows); n_rows x n_vectors is 4. */
INLINE void few_rows(const hc_few_floats_args *args, int first, int bits, int n_rows, int n_vectors, bool zeros) {
    const hc_decoder d = make_decoder(bits, args->flip, zeros ? 0 : args->zero);
    const int64_t step = 8 * bits, row_bytes = (args->columns * bits + 7) / 8;
    const float *x = args->x;
    __m512 acc[4][4], zero[4];
    for (int i = 0; i < 4; i++)
        for (int j = 0; j < 4; j++)
            acc[i][j] = _mm512_setzero_ps();
    for (int r = 0; r < n_rows; r++)
        zero[r] = _mm512_set1_ps(zeros ? args->zeros[first + r][0] : 0);
    for (int64_t place = 0; place < row_bytes; place += step, x += 64 * n_vectors) {
        const __mmask64 mask = row_bytes - place >= step ? ~0ull : (1ull << (row_bytes - place)) - 1;
        for (int r = 0; r < n_rows; r++) {
            __m512 codes[4];
            _mm_prefetch(args->next[first + r] + place, _MM_HINT_T1);
            load_codes(&d, args->codes[first + r] + place, mask, bits, zero[r], zeros, codes);
            for (int v = 0; v < n_vectors; v++)
                for (int j = 0; j < 4; j++)
                    acc[r * n_vectors + v][j] =
                        _mm512_fmadd_ps(_mm512_loadu_ps(x + (v * 4 + j) * 16), codes[j], acc[r * n_vectors + v][j]);
        }
    }
    for (int i = 0; i < 4; i++)
        args->out[first * n_vectors + i] = fold(acc[i], bits);
}

INLINE void choose(const hc_few_floats_args *args, int n_rows, int n_vectors) {
    for (int first = 0; first < HC_FEW_ROWS; first += n_rows)
        if (args->bits == 4)
            args->zeros[0] ? few_rows(args, first, 4, n_rows, n_vectors, true)
                           : few_rows(args, first, 4, n_rows, n_vectors, false);
        else
            args->zeros[0] ? few_rows(args, first, 8, n_rows, n_vectors, true)
                           : few_rows(args, first, 8, n_rows, n_vectors, false);
}

void hc_few_rows_avx512(const hc_few_floats_args *args) {
    if (args->n_vectors == 1)
        choose(args, 4, 1);
    else if (args->n_vectors == 2)
        choose(args, 2, 2);
    else
        choose(args, 1, 4);
}
