/* lanes_s8_avx512vnni.c for 4-bit codes as they are stored. While 128 columns of some rows of w are multiplied by x,
 * the next 128 are converted to bytes in L1, one row at a time. Of this conversion only the multiplications by scales
 * compete with the dot products for their units. */
#include "kernels/rows/lanes_rows_avx512.h"
#include "kernels/rows/rows_s4_avx512.h"

enum { COLUMNS = 128, BYTES = 64 }; /* of a step */

typedef struct {
    _Alignas(64) int8_t bytes[2][MOST_W][COLUMNS]; /* of this step and of the next step */
    __m512i sums[MOST_W];                          /* of bytes + added */
    hc_scales scales[MOST_W];
} rows_of_w;

/* A step of one row. */
INLINE void decode(rows_of_w *to, int b, const uint8_t *w, int64_t k, int64_t bytes, const int words, int which) {
    const __m512i added = _mm512_set1_epi8(words == PLAIN ? 8 : -128), zero = _mm512_setzero_si512();
    vector codes[2];
    load_codes(w + k, hc_min(bytes - k, BYTES), to->scales + b, words ? k / (4 * words) : 0, words, codes);
    to->sums[b] = _mm512_add_epi64(to->sums[b],
                                   _mm512_add_epi64(_mm512_sad_epu8(codes[0], zero), _mm512_sad_epu8(codes[1], zero)));
    _mm512_store_si512(to->bytes[which][b], _mm512_sub_epi8(codes[0], added));
    _mm512_store_si512(to->bytes[which][b] + BYTES, _mm512_sub_epi8(codes[1], added));
}

INLINE void multiply(const hc_lanes_s8_args *args, const int n_x, const int n_w, const int width, const int words,
                     int64_t j, uintptr_t next) {
    const int chains = n_x == 1 ? CHAINS : 1;
    const int64_t ld_w = args->ld_w, bytes = (args->columns + 1) / 2;
    const uint8_t *x = args->x, *w = (const uint8_t *)args->w + j * ld_w;
    rows_of_w decoded;
    __m512i sum[CHAINS][MOST_W][MOST_X];
#pragma GCC unroll 8
    for (int b = 0; b < n_w; b++) {
#pragma GCC unroll 4
        for (int v = 0; v < n_x; v++)
            sum[0][b][v] = sum[1][b][v] = _mm512_setzero_si512();
    }
    for (int b = 0; b < n_w && bytes > 0; b++) {
        if (words != PLAIN)
            expand(args->scales + (j + b) * args->ld_scales, words, bytes, decoded.scales + b);
        decoded.sums[b] = _mm512_setzero_si512();
        decode(&decoded, b, w + b * ld_w, 0, bytes, words, 0);
    }
    int which = 0;
    for (int64_t k = 0; k < bytes; k += BYTES, which = 1 - which) {
        const int64_t then = k + BYTES;
        const int8_t *now[MOST_W / 4] = {decoded.bytes[which][0], decoded.bytes[which][4]};
        for (int b = 0; b < MOST_W; b++) {
            if (b < n_w && next)
                _mm_prefetch((const char *)(next + (uintptr_t)(b * ld_w + k)), _MM_HINT_T1);
            if (b < n_w && then < bytes)
                decode(&decoded, b, w + b * ld_w, then, bytes, words, 1 - which);
            for (int at = 0; at < COLUMNS / MOST_W; at += chains * width)
#pragma GCC unroll 2
                for (int c = 0; c < chains; c++, x += n_x * STEP) {
                    add_step(n_x, n_w, width, x, now, COLUMNS, sum[c]);
                    advance(n_w, now, width);
                }
        }
    }
    const int32_t all = (int32_t)(hc_round_up(args->columns, COLUMNS) * (words == PLAIN ? 8 : 128));
#pragma GCC unroll 8
    for (int b = 0; b < n_w; b++) {
        int32_t *c = args->c + (j + b) * args->ldc;
        const int32_t w_sum = bytes ? (int32_t)_mm512_reduce_add_epi64(decoded.sums[b]) - all : 0;
        const __m512i added = _mm512_set1_epi32(w_sum * 128);
#pragma GCC unroll 4
        for (int v = 0; v < n_x; v++)
            put_lanes(c + v * LANES, width, args->accumulate, added,
                      chains == 1 ? sum[0][b][v] : _mm512_add_epi32(sum[0][b][v], sum[1][b][v]));
    }
}

HC_LANES(PLAIN)
HC_LANES(2)
HC_LANES(4)
HC_LANES(8)

void hc_lanes_s4_avx512vnni(const hc_lanes_s8_args *args) {
    switch (args->words) {
    case PLAIN:
        of_lanes_PLAIN(args);
        break;
    case 2:
        of_lanes_2(args);
        break;
    case 4:
        of_lanes_4(args);
        break;
    default:
        of_lanes_8(args);
    }
}
