/* Rows of x in lanes, w in its order: 16 rows of x per register, four bytes of a row of w broadcast; or 8 rows, with
 * four bytes each twice, and eight bytes of w. Nothing is summed across lanes. The sums of w's bytes correct for the
 * bias 128 of x: vpsadbw and its other instructions use no unit of the dot products. With vpdpbusd the sums took a
 * sixteenth of the time of 16 rows of x (Zen 4). */
#include "kernels/rows/lanes_rows_avx512.h"

enum { BITS = 16 };

/* Adds the sums of w + 128 of 64 columns of n_w rows to w_sums: four rows share a register, 16 bits each, which the 32
 * steps of a call fill to at most 65280. */
INLINE void add_sums(const int n_w, const __m512i *bytes, __m512i *w_sums) {
#pragma GCC unroll 8
    for (int b = 0; b < n_w; b++) {
        const __m512i sum = _mm512_sad_epu8(_mm512_xor_si512(bytes[b], _mm512_set1_epi8(-128)), _mm512_setzero_si512());
        w_sums[b / 4] = _mm512_add_epi64(w_sums[b / 4], _mm512_slli_epi64(sum, b % 4 * BITS));
    }
}

/* 128 times the sum of row b of w. */
INLINE int32_t added_by(const __m512i *w_sums, int b, int64_t steps) {
    const __m512i of_row = _mm512_and_si512(_mm512_srli_epi64(w_sums[b / 4], b % 4 * BITS), _mm512_set1_epi64(0xffff));
    return ((int32_t)_mm512_reduce_add_epi64(of_row) - (int32_t)(steps * STEP) * 128) * 128;
}

/* n_w rows of w from j on. One register of x has two chains of sums per row: 8 chains would wait for each other, and 16
 * rows of a multiple of 4 KiB would not fit into L1 together. */
INLINE void multiply(const hc_lanes_s8_args *args, const int n_x, const int n_w, const int width, const int words,
                     int64_t j, uintptr_t next) {
    const int chains = n_x == 1 ? CHAINS : 1;
    const int64_t whole = args->columns / width * width, ld_w = args->ld_w;
    const uint8_t *x = args->x;
    const int8_t *w[MOST_W / 4];
    __m512i sum[CHAINS][MOST_W][MOST_X], w_sums[MOST_W / 4] = {{0}}, bytes[MOST_W];
#pragma GCC unroll 2
    for (int b = 0; b < n_w; b += 4)
        w[b / 4] = args->w + (j + b) * ld_w;
#pragma GCC unroll 8
    for (int b = 0; b < n_w; b++) {
#pragma GCC unroll 4
        for (int v = 0; v < n_x; v++)
            sum[0][b][v] = sum[1][b][v] = _mm512_setzero_si512();
    }
    (void)words;
    int64_t k = 0;
    for (; k + STEP <= whole; k += STEP) {
        if (next) {
#pragma GCC unroll 8
            for (int b = 0; b < n_w; b++)
                _mm_prefetch((const char *)(next + (uintptr_t)(b * ld_w + k)), _MM_HINT_T1);
        }
#pragma GCC unroll 8
        for (int b = 0; b < n_w; b++)
            bytes[b] = _mm512_loadu_si512(w[b / 4] + b % 4 * ld_w);
        add_sums(n_w, bytes, w_sums);
        for (int at = 0; at < STEP; at += chains * width)
#pragma GCC unroll 2
            for (int c = 0; c < chains; c++, x += n_x * STEP) {
                add_step(n_x, n_w, width, x, w, ld_w, sum[c]);
                advance(n_w, w, width);
            }
    }
    if (k < args->columns) {
        const __mmask64 present = ((__mmask64)1 << (args->columns - k)) - 1;
        for (int b = 0; b < n_w; b++)
            bytes[b] = _mm512_maskz_loadu_epi8(present, w[b / 4] + b % 4 * ld_w);
        add_sums(n_w, bytes, w_sums);
    }
    const int64_t steps = hc_ceil_div(args->columns, STEP);
    for (; k < whole; k += width, x += n_x * STEP) {
        add_step(n_x, n_w, width, x, w, ld_w, sum[0]);
        advance(n_w, w, width);
    }
    if (whole < args->columns) {
        int8_t tail[MOST_W][8] = {{0}};
        for (int b = 0; b < n_w; b++)
            memcpy(tail[b], args->w + (j + b) * ld_w + whole, (size_t)(args->columns - whole));
#pragma GCC unroll 2
        for (int b = 0; b < n_w; b += 4)
            w[b / 4] = tail[b];
        add_step(n_x, n_w, width, x, w, 8, sum[0]);
    }
#pragma GCC unroll 8
    for (int b = 0; b < n_w; b++) {
        int32_t *c = args->c + (j + b) * args->ldc;
        const __m512i added = _mm512_set1_epi32(added_by(w_sums, b, steps));
#pragma GCC unroll 4
        for (int v = 0; v < n_x; v++)
            put_lanes(c + v * LANES, width, args->accumulate, added,
                      chains == 1 ? sum[0][b][v] : _mm512_add_epi32(sum[0][b][v], sum[1][b][v]));
    }
}

HC_LANES(0)

void hc_lanes_s8_avx512vnni(const hc_lanes_s8_args *args) { of_lanes_0(args); }
