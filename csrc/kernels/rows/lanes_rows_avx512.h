/* Walks all rows of w in blocks, for the kernel that defines `multiply`. */
#ifndef HC_LANES_ROWS_AVX512_H
#define HC_LANES_ROWS_AVX512_H

#include "kernels/rows/lanes_avx512.h"

/* n_w rows of w from j on, with the kernel's kind of codes; next: the rows to prefetch, or 0. */
INLINE void multiply(const hc_lanes_s8_args *args, const int n_x, const int n_w, const int width, const int words,
                     int64_t j, uintptr_t next);

INLINE void of_rows(const hc_lanes_s8_args *args, const int n_x, const int n_w, const int width, const int words) {
    int until = args->part; /* blocks of rows until the next block that prefetches */
    int64_t j = 0;
    for (; j + n_w <= args->n_w; j += n_w) {
        uintptr_t next = 0;
        if (args->next && until-- == 0) {
            /* possibly after the last row, which a prefetch ignores */
            next = (uintptr_t)args->next + (uintptr_t)(j * args->ld_w);
            until = args->parts - 1;
        }
        multiply(args, n_x, n_w, width, words, j, next);
    }
    for (; j < args->n_w; j++)
        multiply(args, n_x, 1, width, words, j, 0);
}

/* Each case is a function of its own: the time of a compiler grows faster than the length of a function. As many as 24
 * sums while registers and addresses of rows suffice; 12 rows of w with 2 registers of x were slower than 8 (Zen 5). */
#define HC_LANES_CASE(name, n_x, n_w, width, words)                                                                    \
    static __attribute__((noinline)) void name(const hc_lanes_s8_args *args) { of_rows(args, n_x, n_w, width, words); }
#define HC_LANES(words)                                                                                                \
    HC_LANES_CASE(few_##words, 1, 8, 8, words)                                                                         \
    HC_LANES_CASE(one_##words, 1, 8, 4, words)                                                                         \
    HC_LANES_CASE(two_##words, 2, 8, 4, words)                                                                         \
    HC_LANES_CASE(three_##words, 3, 8, 4, words)                                                                       \
    HC_LANES_CASE(four_##words, 4, 6, 4, words)                                                                        \
    static void of_lanes_##words(const hc_lanes_s8_args *args) {                                                       \
        switch (args->lanes) {                                                                                         \
        case HC_LANES_FEW:                                                                                             \
            few_##words(args);                                                                                         \
            break;                                                                                                     \
        case 1 * LANES:                                                                                                \
            one_##words(args);                                                                                         \
            break;                                                                                                     \
        case 2 * LANES:                                                                                                \
            two_##words(args);                                                                                         \
            break;                                                                                                     \
        case 3 * LANES:                                                                                                \
            three_##words(args);                                                                                       \
            break;                                                                                                     \
        case 4 * LANES:                                                                                                \
            four_##words(args);                                                                                        \
            break;                                                                                                     \
        }                                                                                                              \
    }

#endif
