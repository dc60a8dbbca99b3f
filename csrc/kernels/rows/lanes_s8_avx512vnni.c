/* Rows of x in lanes, w as it lies: 16 rows of x a register, four bytes of a row of w broadcast against them; or 8 rows, twice
 * four bytes each, and eight bytes of w. Nothing else is summed sideways. What the 128 that was added to x adds is taken away
 * by the sums of w's bytes: vpsadbw and what it needs wait for no unit of the dots, and by vpdpbusd they took a sixteenth of
 * the time of 16 rows of x (Zen 4). */
#include "kernels/kernel.h"

#include <immintrin.h>
#include <string.h>

#define INLINE static inline __attribute__((always_inline))

enum { LANES = 16, STEP = 64, MOST_W = 8, MOST_X = 4, CHAINS = 2, BITS = 16 };

/* As in gemm_s8_avx512vnni.c: the intrinsic makes gcc 12 copy accumulators. */
INLINE __m512i dot(__m512i sum, __m512i x_u8, __m512i w_s8) {
    __asm__("vpdpbusd %2, %1, %0" : "+v"(sum) : "v"(x_u8), "v"(w_s8));
    return sum;
}

/* The sums of w + 128 of 64 columns of n_w rows, added to w_sums: four rows share a register, 16 bits each, which the
 * 32 steps of a call fill to 65280 at most. */
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

/* The next `width` columns: 4, or 8 of which a register holds those of half as many rows. */
INLINE void add_step(const int n_x, const int n_w, const int width, const uint8_t *x, const int8_t *const *w,
                     int64_t ld_w, __m512i sum[][MOST_X]) {
    __m512i values[MOST_X];
#pragma GCC unroll 4
    for (int v = 0; v < n_x; v++)
        values[v] = _mm512_loadu_si512(x + v * STEP);
#pragma GCC unroll 8
    for (int b = 0; b < n_w; b++) {
        int64_t bytes = 0;
        memcpy(&bytes, w[b / 4] + b % 4 * ld_w, (size_t)width);
        const __m512i codes = width == 4 ? _mm512_set1_epi32((int32_t)bytes) : _mm512_set1_epi64(bytes);
#pragma GCC unroll 4
        for (int v = 0; v < n_x; v++)
            sum[b][v] = dot(sum[b][v], values[v], codes);
    }
}

INLINE void advance(const int n_w, const int8_t **w, int64_t by) {
#pragma GCC unroll 2
    for (int b = 0; b < n_w; b += 4)
        w[b / 4] += by;
}

INLINE void put(int32_t *c, const int width, bool accumulate, __m512i added, __m512i sum) {
    if (width == 4) {
        const __m512i from = accumulate ? _mm512_loadu_si512(c) : _mm512_setzero_si512();
        _mm512_storeu_si512(c, _mm512_add_epi32(from, _mm512_sub_epi32(sum, added)));
    } else {
        const __m256i from = accumulate ? _mm256_loadu_si256((const __m256i *)(void *)c) : _mm256_setzero_si256();
        const __m256i both = _mm512_cvtepi64_epi32(_mm512_add_epi32(sum, _mm512_srli_epi64(sum, 32)));
        const __m256i dots = _mm256_sub_epi32(both, _mm512_castsi512_si256(added));
        _mm256_storeu_si256((__m256i *)(void *)c, _mm256_add_epi32(from, dots));
    }
}

/* n_w rows of w from j on. One register of x has two chains of sums a row: 8 chains would wait for each other, and 16 rows
 * of a multiple of 4 KiB would not stay in L1 together. */
INLINE void multiply(const hc_lanes_s8_args *args, const int n_x, const int n_w, const int width, int64_t j,
                     uintptr_t next) {
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
            put(c + v * LANES, width, args->accumulate, added,
                chains == 1 ? sum[0][b][v] : _mm512_add_epi32(sum[0][b][v], sum[1][b][v]));
    }
}

INLINE void all_rows(const hc_lanes_s8_args *args, const int n_x, const int n_w, const int width) {
    int until = args->part; /* blocks of rows until the next one that prefetches */
    int64_t j = 0;
    for (; j + n_w <= args->n_w; j += n_w) {
        uintptr_t next = 0;
        if (args->next && until-- == 0) {
            next = (uintptr_t)args->next + (uintptr_t)(j * args->ld_w); /* maybe behind the last row */
            until = args->parts - 1;
        }
        multiply(args, n_x, n_w, width, j, next);
    }
    for (; j < args->n_w; j++)
        multiply(args, n_x, 1, width, j, 0);
}

/* 24 sums where registers and addresses of rows last; 12 rows of w beside 2 registers of x were slower than 8 (Zen 5). */
void hc_lanes_s8_avx512vnni(const hc_lanes_s8_args *args) {
    switch (args->lanes) {
    case HC_LANES_FEW:
        all_rows(args, 1, 8, 8);
        break;
    case 1 * LANES:
        all_rows(args, 1, 8, 4);
        break;
    case 2 * LANES:
        all_rows(args, 2, 8, 4);
        break;
    case 3 * LANES:
        all_rows(args, 3, 8, 4);
        break;
    case 4 * LANES:
        all_rows(args, 4, 6, 4);
        break;
    }
}
