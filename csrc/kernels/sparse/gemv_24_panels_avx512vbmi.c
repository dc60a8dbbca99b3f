/* gemv_24_panels: 512 columns are 16 groups of 16 codes, with one 32-bit lane each, and four panels of 128 columns with
 * two of the 8 quads of every group each. One shift of the metadata gives the positions for two panels: bits 0-1 and
 * 4-5 of a byte, which together with the number of the byte are an index into the panel. x is biased by 128, so 128 *
 * (sum of the codes) is subtracted. vpdpwssd multiplies words of two such dot products by the scales and adds them. The
 * number of instructions is the bound, 32 for 512 columns. The kernel needs VNNI as well as VBMI. Few processors have
 * only VBMI; ops checks both.
 */
#include "kernels/sparse/gemv_24_avx512.h"

#define VNNI __attribute__((target("avx512vnni")))
enum { SPAN = 256, SPAN_METADATA = 128, SPAN_COLUMNS = 1024 }; /* bytes of codes and metadata at once */
enum { CODES_AHEAD = 8192, METADATA_AHEAD = 4096 };            /* bytes prefetched ahead: Zen 4, 2026-11 */

typedef struct {
    __m512i windows[2], fields[2], numbers[2]; /* of positions; those of odd panels are at bits 4-5 */
    __m512i nibbles[2], codes;                 /* index of a panel's codes in a group's half; c by code, four times */
    __m512i metadata_order, scale_places;
} hc_constants;

/* Index of the scales of four words: of lanes 4 * part .. 4 * part + 3 in the first or second 512 columns. */
INLINE long long scale_place(int words, int part, int second) {
    uint64_t places = 0;
    for (int j = 0; j < 4; j++) {
        const int group = 2 * part + j % 2 + j / 2 * 8;
        places |= (uint64_t)(group / (words / 2) * 4 + (words == 2 ? 0 : second * 128 / words)) << 16 * j;
    }
    return (long long)places;
}

INLINE hc_constants make_constants(int flip, int zero, int words) {
    const __m512i qwords = _mm512_mullo_epi64(_mm512_setr_epi64(0, 1, 2, 3, 4, 5, 6, 7), _mm512_set1_epi8(8));
    const __m512i bytes = _mm512_or_si512(qwords, _mm512_set1_epi64(0x0706050403020100));
    const __m512i pairs = _mm512_and_si512(bytes, _mm512_set1_epi8(62)), top = _mm512_set1_epi8(32);
    const __m512i codes = _mm512_and_si512(bytes, _mm512_set1_epi8(15));
    const __m512i halves = _mm512_andnot_si512(top, pairs), eighth = _mm512_and_si512(bytes, top);
    hc_constants c;
    c.windows[0] = _mm512_set1_epi64(0x2a2822200a080200); /* bits of the first and second code of quads 0 and 2 */
    c.windows[1] = _mm512_set1_epi64(0x3a3832301a181210);
    c.fields[0] = _mm512_set1_epi8(3);
    c.fields[1] = _mm512_set1_epi8(0x30);
    c.numbers[0] = _mm512_add_epi8(pairs, pairs);
    c.numbers[1] = _mm512_or_si512(_mm512_srli_epi16(halves, 1), _mm512_add_epi8(eighth, eighth));
    c.nibbles[0] = _mm512_set1_epi64(0x3430242014100400);
    c.nibbles[1] = _mm512_set1_epi64(0x3c382c281c180c08);
    c.codes = _mm512_sub_epi8(_mm512_xor_si512(codes, _mm512_set1_epi8((char)flip)), _mm512_set1_epi8((char)zero));
    c.metadata_order = _mm512_setr_epi64(0, 4, 1, 5, 2, 6, 3, 7);
    c.scale_places = _mm512_setr_epi64(scale_place(words, 0, 0), scale_place(words, 0, 1), scale_place(words, 1, 0),
                                       scale_place(words, 1, 1), scale_place(words, 2, 0), scale_place(words, 2, 1),
                                       scale_place(words, 3, 0), scale_place(words, 3, 1));
    /* kept in registers: compilers would load them repeatedly */
    __asm__("" : "+v"(c.fields[0]), "+v"(c.fields[1]), "+v"(c.numbers[0]), "+v"(c.numbers[1]), "+v"(c.codes));
    return c;
}

/* Dot products of 512 columns, one group per lane. */
VNNI INLINE void dot_groups(const hc_constants *c, __m512i codes_low, __m512i codes_high, __m512i metadata,
                            const uint8_t *x, int64_t ldx, int n_vectors, __m512i dots[]) {
    const __m512 low = _mm512_castsi512_ps(codes_low), high = _mm512_castsi512_ps(codes_high);
    const __m512i ordered = _mm512_permutexvar_epi64(c->metadata_order, metadata);
    /* words 0 and 1 of every group, in the order of vshufps */
    const __m512i halves[2] = {_mm512_castps_si512(_mm512_shuffle_ps(low, high, 0x88)),
                               _mm512_castps_si512(_mm512_shuffle_ps(low, high, 0xdd))};
    __m512i index[4], code[4];
#pragma GCC unroll 4
    for (int p = 0; p < 4; p++) {
        const __m512i windows = _mm512_multishift_epi64_epi8(c->windows[p / 2], ordered); /* compilers share it */
        index[p] = _mm512_ternarylogic_epi32(windows, c->fields[p % 2], c->numbers[p % 2], 0xea); /* (w & f) | n */
        /* reads 6 bits of an index, of which two belong to the next code */
        code[p] = _mm512_permutexvar_epi8(_mm512_multishift_epi64_epi8(c->nibbles[p % 2], halves[p / 2]), c->codes);
    }
    const __m512i sums = _mm512_add_epi8(_mm512_add_epi8(code[0], code[1]), _mm512_add_epi8(code[2], code[3]));
    const __m512i offset = _mm512_dpbusd_epi32(_mm512_setzero_si512(), _mm512_set1_epi8(-128), sums);
#pragma GCC unroll 4
    for (int v = 0; v < n_vectors; v++) {
        const uint8_t *panel = x + v * ldx;
        __m512i dot = _mm512_setzero_si512();
#pragma GCC unroll 4
        for (int p = 0; p < 4; p++, panel += 128) {
            const __m512i even = _mm512_loadu_si512(panel), odd = _mm512_loadu_si512(panel + 64);
            dot = _mm512_dpbusd_epi32(dot, _mm512_permutex2var_epi8(even, index[p], odd), code[p]);
        }
        dots[v] = _mm512_sub_epi32(dot, offset);
    }
}

/* 1024 columns. */
VNNI INLINE void add_span(const hc_constants *c, const __m512i codes[], const __m512i metadata[], __m512i scales,
                          const uint8_t *x, int64_t ldx, int n_vectors, __m512i sum[]) {
    __m512i dots[2][HC_GEMV_VECTORS];
    const __m512i spread = _mm512_multishift_epi64_epi8(c->scale_places, scales);
    const __m512i words = _mm512_and_si512(spread, _mm512_set1_epi16(15));
#pragma GCC unroll 2
    for (int i = 0; i < 2; i++)
        dot_groups(c, codes[2 * i], codes[2 * i + 1], metadata[i], x + 512 * i, ldx, n_vectors, dots[i]);
#pragma GCC unroll 4
    for (int v = 0; v < n_vectors; v++)
        sum[v] = _mm512_dpwssd_epi32(sum[v], _mm512_packs_epi32(dots[0][v], dots[1][v]), words);
}

INLINE __m512i expand_scales(__m128i scales, int words) {
    return words == 2   ? _mm512_broadcast_i32x4(scales)
           : words == 4 ? _mm512_broadcastq_epi64(scales)
                        : _mm512_broadcastd_epi32(scales);
}

INLINE __m128i load_scales(const uint8_t *from, int words) {
    return words == 2   ? _mm_loadu_si128((const __m128i *)from)
           : words == 4 ? _mm_loadl_epi64((const __m128i *)from)
                        : _mm_loadu_si32(from);
}

VNNI INLINE void add_rows(const hc_gemv_24_panels_args *args, int words, int n_vectors) {
    const hc_constants constants = make_constants(args->flip, args->zero, words);
    const int64_t spans = hc_min(args->code_bytes / SPAN, args->metadata_bytes / SPAN_METADATA);
    const int64_t left = args->code_bytes - spans * SPAN;
    const int64_t metadata_left = args->metadata_bytes - spans * SPAN_METADATA;
    const __mmask16 scales_left = (__mmask16)((1u << (left + 8 * words - 1) / (8 * words)) - 1);
    for (int r = 0; r < HC_GEMV_ROWS; r++) {
        const uint8_t *codes = args->codes[r], *metadata = args->metadata[r], *scales = args->scales[r], *x = args->x;
        __m512i sum[HC_GEMV_VECTORS], stored[4], positions[2];
#pragma GCC unroll 4
        for (int v = 0; v < n_vectors; v++)
            sum[v] = _mm512_setzero_si512();
        for (int64_t i = 0; i < spans; i++) {
#pragma GCC unroll 4
            for (int j = 0; j < 4; j++) {
                stored[j] = _mm512_loadu_si512(codes + 64 * j);
                _mm_prefetch(codes + CODES_AHEAD + 64 * j, _MM_HINT_T1);
            }
#pragma GCC unroll 2
            for (int j = 0; j < 2; j++) {
                positions[j] = _mm512_loadu_si512(metadata + 64 * j);
                _mm_prefetch(metadata + METADATA_AHEAD + 64 * j, _MM_HINT_T1);
            }
            add_span(&constants, stored, positions, expand_scales(load_scales(scales, words), words), x, args->ldx,
                     n_vectors, sum);
            codes += SPAN;
            metadata += SPAN_METADATA;
            scales += SPAN / (8 * words);
            x += SPAN_COLUMNS;
        }
        if (left > 0) {
            for (int j = 0; j < 4; j++)
                stored[j] = load_bytes(codes + 64 * j, left - 64 * j);
            for (int j = 0; j < 2; j++)
                positions[j] = load_bytes(metadata + 64 * j, metadata_left - 64 * j);
            add_span(&constants, stored, positions, expand_scales(_mm_maskz_loadu_epi8(scales_left, scales), words), x,
                     args->ldx, n_vectors, sum);
        }
#pragma GCC unroll 4
        for (int v = 0; v < n_vectors; v++)
            args->sums[v * HC_GEMV_ROWS + r] = _mm512_reduce_add_epi32(sum[v]);
    }
}

VNNI INLINE void choose(const hc_gemv_24_panels_args *args, int n_vectors) {
    args->words == 2   ? add_rows(args, 2, n_vectors)
    : args->words == 4 ? add_rows(args, 4, n_vectors)
                       : add_rows(args, 8, n_vectors);
}

VNNI void hc_gemv_24_panels_avx512vbmi(const hc_gemv_24_panels_args *args) {
    args->n_vectors == 1 ? choose(args, 1) : args->n_vectors == 2 ? choose(args, 2) : choose(args, 4);
}
