/* gemv_24_groups: the words of 16 groups are split into bytes of two quads each. One test of 64 bytes then gives the
 * masks of a quad's 4 bits, each in a quarter of a mask register. The masks select the x of each of the two nonzero
 * codes from the quad's four: the first is never column 3, the second never column 0.
 */
#include "kernels/gemv/gemv_avx512.h"

enum { MAX_WORDS = 8, METADATA_AHEAD = 2048 }; /* bytes prefetched ahead: Zen 4, 2026-11 */

/* 16 words -> their first bytes, second bytes, ... */
INLINE __m512i part_bytes(__m512i words) {
    const __m512i in_lane = _mm512_broadcast_i32x4(_mm_setr_epi8(0, 4, 8, 12, 1, 5, 9, 13, 2, 6, 10, 14, 3, 7, 11, 15));
    const __m512i lanes = _mm512_setr_epi32(0, 4, 8, 12, 1, 5, 9, 13, 2, 6, 10, 14, 3, 7, 11, 15);
    return _mm512_permutexvar_epi32(lanes, _mm512_shuffle_epi8(words, in_lane));
}

/* Adds 8 quads of every row, whose bytes of metadata are split, and two words of codes. */
INLINE void add_quads(const hc_decoder *d, const uint8_t metadata[][64], const __m512i codes[][2], const float *x,
                      __m512 p[], hc_code_kind kind, int n_vectors) {
    const __m512i lanes = _mm512_setr_epi64(1, 1, 2, 2, 4, 4, 8, 8); /* a bit for each quarter */
    const __m512i bits = _mm512_mullo_epi64(lanes, _mm512_set1_epi8(1)), upper_bits = _mm512_slli_epi32(bits, 4);
    const int step = n_vectors * 16;
#pragma GCC unroll 8
    for (int q = 0; q < 8; q++, x += 4 * step)
#pragma GCC unroll 4
        for (int r = 0; r < HC_GEMV_ROWS; r++) {
            const __m512i bytes = _mm512_broadcast_i32x4(_mm_loadu_si128((const __m128i *)metadata[r] + q / 2));
            const __mmask64 bit_0 = _mm512_test_epi8_mask(bytes, q % 2 ? upper_bits : bits);
            const __mmask16 bit_1 = (__mmask16)_kshiftri_mask64(bit_0, 16);
            const __mmask16 bit_2 = (__mmask16)_kshiftri_mask64(bit_0, 32);
            const __mmask16 bit_3 = (__mmask16)_kshiftri_mask64(bit_0, 48);
            const __m512 first = code_f32x16(d, r, codes[r][q / 4], kind, 2 * q % 8);
            const __m512 second = code_f32x16(d, r, codes[r][q / 4], kind, 2 * q % 8 + 1);
#pragma GCC unroll 4
            for (int v = 0; v < n_vectors; v++) {
                const float *from = x + v * 16;
                const int i = r * n_vectors + v;
                const __m512 x_0 = _mm512_loadu_ps(from), x_1 = _mm512_loadu_ps(from + step);
                const __m512 x_2 = _mm512_loadu_ps(from + 2 * step), x_3 = _mm512_loadu_ps(from + 3 * step);
                __m512 a = _mm512_mask_mov_ps(x_0, (__mmask16)bit_0, x_1);
                a = _mm512_mask_mov_ps(a, bit_1, x_2);
                const __m512 upper = _mm512_mask_mov_ps(x_2, bit_2, x_3), b = _mm512_mask_mov_ps(x_1, bit_3, upper);
                p[i] = _mm512_fmadd_ps(b, second, _mm512_fmadd_ps(a, first, p[i]));
            }
        }
}

INLINE void transpose_words(const uint8_t *codes, int words, int64_t groups, __m512i *out) {
    words == 2   ? transpose_block(codes, 2, groups, out)
    : words == 4 ? transpose_block(codes, 4, groups, out)
                 : transpose_block(codes, 8, groups, out);
}

/* The codes and the metadata of a row of a block, but for groups of 2 words, whose metadata are words already. */
INLINE void transpose_row(const hc_gemv_24_floats_args *args, int r, int64_t g, int64_t groups, int words,
                          __m512i *codes, __m512i *metadata) {
    transpose_words(args->floats.codes[r] + 4 * g * words, words, groups, codes);
    if (words > 2)
        words == 4 ? transpose_block(args->metadata[r] + 2 * g * words, 2, groups, metadata)
                   : transpose_block(args->metadata[r] + 2 * g * words, 4, groups, metadata);
}

/* The same for the last block of a row, if it has fewer than 16 groups. Not inlined: it is the same for all codes. */
static __attribute__((noinline)) void transpose_last(const hc_gemv_24_floats_args *args, int r, int64_t g,
                                                     int64_t groups, int words, __m512i *codes, __m512i *metadata) {
    transpose_row(args, r, g, groups, words, codes, metadata);
}

/* A block of 16 groups from g on; `groups` of them exist. */
INLINE void add_block(const hc_gemv_24_floats_args *args, const hc_decoder *d, int64_t g, int64_t groups, __m512 acc[],
                      hc_code_kind kind, int n_vectors) {
    const hc_gemv_floats_args *floats = &args->floats;
    const int words = (int)floats->group / 8;
    const __mmask16 mask = (__mmask16)((1u << groups) - 1);
    const float *x = floats->x + 16 * g * words * n_vectors;
    __m512i codes[HC_GEMV_ROWS][MAX_WORDS], metadata[HC_GEMV_ROWS][MAX_WORDS / 2];
    __m512 p[HC_GEMV_ROWS * HC_GEMV_VECTORS];
#pragma GCC unroll 16
    for (int i = 0; i < HC_GEMV_ROWS * n_vectors; i++)
        p[i] = _mm512_setzero_ps();
#pragma GCC unroll 4
    for (int r = 0; r < HC_GEMV_ROWS; r++) {
        for (int line = 0; line < words; line++)
            _mm_prefetch(floats->next[r] + 4 * g * words + 64 * line, _MM_HINT_T1);
        for (int line = 0; line < words / 2; line++)
            _mm_prefetch(args->metadata[r] + METADATA_AHEAD + 2 * g * words + 64 * line, _MM_HINT_T1);
        if (words == 2)
            metadata[r][0] = _mm512_maskz_loadu_epi32(mask, args->metadata[r] + 4 * g);
        groups == 16 ? transpose_row(args, r, g, 16, words, codes[r], metadata[r])
                     : transpose_last(args, r, g, groups, words, codes[r], metadata[r]);
    }
#pragma GCC unroll 1
    for (int i = 0; i < words / 2; i++, x += 32 * n_vectors * 16) {
        __m512i pair[HC_GEMV_ROWS][2];
        uint8_t bytes[HC_GEMV_ROWS][64];
#pragma GCC unroll 4
        for (int r = 0; r < HC_GEMV_ROWS; r++) {
            _mm512_storeu_si512(bytes[r], part_bytes(metadata[r][i]));
            pair[r][0] = codes[r][2 * i];
            pair[r][1] = codes[r][2 * i + 1];
        }
        add_quads(d, (const uint8_t (*)[64])bytes, (const __m512i(*)[2])pair, x, p, kind, n_vectors);
    }
#pragma GCC unroll 4
    for (int r = 0; r < HC_GEMV_ROWS; r++) {
        const __m512 scale = load_scales(floats->scales[r], floats->scale_bits, g, mask);
#pragma GCC unroll 4
        for (int v = 0; v < n_vectors; v++)
            acc[r * n_vectors + v] = _mm512_mask3_fmadd_ps(scale, p[r * n_vectors + v], acc[r * n_vectors + v], mask);
    }
}

INLINE void gemv_24_groups(const hc_gemv_24_floats_args *args, const hc_decoder *d, hc_code_kind kind, int n_vectors) {
    const int64_t groups = args->floats.groups;
    __m512 acc[HC_GEMV_ROWS * HC_GEMV_VECTORS];
#pragma GCC unroll 16
    for (int i = 0; i < HC_GEMV_ROWS * n_vectors; i++)
        acc[i] = _mm512_setzero_ps();
    for (int64_t g = 0; g < groups; g += 16)
        add_block(args, d, g, hc_min(groups - g, 16), acc, kind, n_vectors);
#pragma GCC unroll 16
    for (int i = 0; i < HC_GEMV_ROWS * n_vectors; i++)
        _mm512_storeu_ps(args->floats.out + 16 * i, acc[i]);
}

/* Each case is a function of its own: the time of a compiler grows faster than the length of a function. */
#define CASE(name, kind, n_vectors)                                                                                    \
    static __attribute__((noinline)) void name##_##n_vectors(const hc_gemv_24_floats_args *args,                       \
                                                             const hc_decoder *made) {                                 \
        const hc_decoder d = *made;                                                                                    \
        gemv_24_groups(args, &d, kind, n_vectors);                                                                     \
    }
#define CASES(n_vectors)                                                                                               \
    CASE(short, CODES_SHORT, n_vectors)                                                                                \
    CASE(long, CODES_LONG, n_vectors)                                                                                  \
    static void choose_##n_vectors(const hc_gemv_24_floats_args *args) {                                               \
        const hc_decoder d = make_decoder(&args->floats);                                                              \
        code_kind(&args->floats, &d) == CODES_SHORT ? short_##n_vectors(args, &d) : long_##n_vectors(args, &d);        \
    }
CASES(1)
CASES(2)
CASES(4)

void hc_gemv_24_groups_avx512(const hc_gemv_24_floats_args *args) {
    args->floats.n_vectors == 1 ? choose_1(args) : args->floats.n_vectors == 2 ? choose_2(args) : choose_4(args);
}
