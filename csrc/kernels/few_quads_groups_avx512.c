/* few_quads_groups: the 4 bits of a quad are tests of one word of metadata, whose masks pick the x of either kept code out
 * of the quad's four: the first is never that of column 3, the second never that of column 0.
 */
#include "kernels/few_avx512.h"

enum { MAX_WORDS = 8 };

INLINE void turn(const uint8_t *stored, int64_t words, int64_t groups, __m512i *out) {
    if (words == 1)
        out[0] = _mm512_maskz_loadu_epi32((__mmask16)((1u << groups) - 1), stored);
    else if (words == 2)
        turn_block(stored, 2, groups, out);
    else if (words == 4)
        turn_block(stored, 4, groups, out);
    else
        turn_block(stored, 8, groups, out);
}

/* 8 quads of every row: a word of metadata and two of codes. */
INLINE void add_quads(const hc_decoder *d, const __m512i metadata[], const __m512i codes[][2], const float *x,
                      __m512 p[], hc_code_kind kind, int n_vectors) {
#pragma GCC unroll 8
    for (int q = 0; q < 8; q++)
#pragma GCC unroll 4
        for (int r = 0; r < HC_FEW_ROWS; r++) {
            const __mmask16 is_1 = _mm512_test_epi32_mask(metadata[r], _mm512_set1_epi32(1 << 4 * q));
            const __mmask16 is_2 = _mm512_test_epi32_mask(metadata[r], _mm512_set1_epi32(2 << 4 * q));
            const __mmask16 above_1 = _mm512_test_epi32_mask(metadata[r], _mm512_set1_epi32((int)(8u << 4 * q)));
            const __mmask16 is_3 = _mm512_mask_test_epi32_mask(above_1, metadata[r], _mm512_set1_epi32(4 << 4 * q));
            const __m512 first = code_f32x16(d, r, codes[r][q / 4], kind, 2 * q % 8);
            const __m512 second = code_f32x16(d, r, codes[r][q / 4], kind, 2 * q % 8 + 1);
#pragma GCC unroll 4
            for (int v = 0; v < n_vectors; v++) {
                const float *from = x + (4 * q * n_vectors + v) * 16;
                const int step = n_vectors * 16, i = r * n_vectors + v;
                const __m512 x_1 = _mm512_loadu_ps(from + step), x_2 = _mm512_loadu_ps(from + 2 * step);
                __m512 a = _mm512_mask_mov_ps(_mm512_loadu_ps(from), is_1, x_1);
                a = _mm512_mask_mov_ps(a, is_2, x_2);
                __m512 b = _mm512_mask_mov_ps(x_1, above_1, x_2);
                b = _mm512_mask_mov_ps(b, is_3, _mm512_loadu_ps(from + 3 * step));
                p[i] = _mm512_fmadd_ps(b, second, _mm512_fmadd_ps(a, first, p[i]));
            }
        }
}

INLINE void few_quads_groups(const hc_few_quads_floats_args *args, hc_code_kind kind, int n_vectors) {
    const hc_few_floats_args *floats = &args->floats;
    const hc_decoder d = make_decoder(floats);
    const int64_t words = floats->group / 8, pairs = words / 2;
    const float *x = floats->x;
    __m512 acc[HC_FEW_ROWS * HC_FEW_VECTORS];
#pragma GCC unroll 16
    for (int i = 0; i < HC_FEW_ROWS * n_vectors; i++)
        acc[i] = _mm512_setzero_ps();
    for (int64_t g = 0; g < floats->groups; g += 16) {
        const int64_t groups = hc_min(floats->groups - g, 16);
        const __mmask16 mask = (__mmask16)((1u << groups) - 1);
        __m512i codes[HC_FEW_ROWS][MAX_WORDS], metadata[HC_FEW_ROWS][MAX_WORDS / 2];
        __m512 p[HC_FEW_ROWS * HC_FEW_VECTORS];
#pragma GCC unroll 16
        for (int i = 0; i < HC_FEW_ROWS * n_vectors; i++)
            p[i] = _mm512_setzero_ps();
        for (int r = 0; r < HC_FEW_ROWS; r++) {
            for (int64_t line = 0; line < words; line++)
                _mm_prefetch(floats->next[r] + 4 * g * words + 64 * line, _MM_HINT_T1);
            turn(floats->codes[r] + 4 * g * words, words, groups, codes[r]);
            turn(args->metadata[r] + 4 * g * pairs, pairs, groups, metadata[r]);
        }
        for (int64_t i = 0; i < pairs; i++, x += 32 * n_vectors * 16) {
            __m512i word[HC_FEW_ROWS], pair[HC_FEW_ROWS][2];
#pragma GCC unroll 4
            for (int r = 0; r < HC_FEW_ROWS; r++) {
                word[r] = metadata[r][i];
                pair[r][0] = codes[r][2 * i];
                pair[r][1] = codes[r][2 * i + 1];
            }
            add_quads(&d, word, (const __m512i(*)[2])pair, x, p, kind, n_vectors);
        }
#pragma GCC unroll 4
        for (int r = 0; r < HC_FEW_ROWS; r++) {
            const __m512 scale = _mm512_maskz_loadu_ps(mask, (const float *)(const void *)floats->scales[r] + g);
#pragma GCC unroll 4
            for (int v = 0; v < n_vectors; v++)
                acc[r * n_vectors + v] =
                    _mm512_mask3_fmadd_ps(scale, p[r * n_vectors + v], acc[r * n_vectors + v], mask);
        }
    }
#pragma GCC unroll 16
    for (int i = 0; i < HC_FEW_ROWS * n_vectors; i++)
        _mm512_storeu_ps(floats->out + 16 * i, acc[i]);
}

INLINE void choose(const hc_few_quads_floats_args *args, hc_code_kind kind) {
    args->floats.n_vectors == 1   ? few_quads_groups(args, kind, 1)
    : args->floats.n_vectors == 2 ? few_quads_groups(args, kind, 2)
                                  : few_quads_groups(args, kind, 4);
}

void hc_few_quads_groups_avx512(const hc_few_quads_floats_args *args) {
    const hc_decoder d = make_decoder(&args->floats);
    code_kind(&args->floats, &d) == CODES_SHORT ? choose(args, CODES_SHORT) : choose(args, CODES_LONG);
}
