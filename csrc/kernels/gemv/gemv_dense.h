/* gemv_dense: LANES rows in lanes; blocks of LANES columns are transposed. Independent sums hide the latency of fma: up
 * to SUMS, of several groups of rows or several vectors. Whole cache lines of a group of rows are read at a time, since
 * rows that are 4 KiB apart share the sets of L1. Included after a header of base/lanes/, GROUPS, the groups of one
 * vector, and AHEAD, the distance of the prefetch in columns, or 0. */
#include "kernels/kernel.h"

#define INLINE static inline __attribute__((always_inline))

enum { LINE = 16 /* columns */, SUMS = 4, CHUNK = LINE * LANES };

/* The last columns of a group. */
INLINE void last_columns(int64_t steps, int64_t k, const float *const *rows, int n_vectors, const float *x, int64_t ldx,
                         lanes *acc) {
    lanes w[LANES];
#pragma GCC unroll 16
    for (int i = 0; i < LANES; i++)
        w[i] = lanes_load_some(rows[i] + k, steps);
    lanes_transpose(w);
#pragma GCC unroll 16
    for (int i = 0; i < LANES; i++)
        for (int v = 0; i < steps && v < n_vectors; v++)
            acc[v] = lanes_fma(lanes_of(x[v * ldx + k + i]), w[i], acc[v]);
}

/* LANES x n_groups rows; n_groups x n_vectors is at most SUMS. */
INLINE void multiply(int64_t n, const float *const *rows, int n_groups, int n_vectors, const float *x, int64_t ldx,
                     float *out) {
    lanes acc[SUMS];
    for (int i = 0; i < SUMS; i++)
        acc[i] = lanes_of(0);
    int64_t k = 0;
    for (; k + LINE <= n; k += LINE) {
#pragma GCC unroll 4
        for (int g = 0; g < n_groups; g++) {
            __asm__ volatile("" : : : "memory"); /* groups one after the other: two have no room in the registers */
            const float *soon = rows[g * LANES + k / LINE % LANES] + k / CHUNK * CHUNK + CHUNK;
            for (int i = 0; AHEAD > 0 && k + 2 * CHUNK < n && i < CHUNK; i += LINE)
                __builtin_prefetch(soon + i, 0, 2);
#pragma GCC unroll 4
            for (int64_t from = k; from < k + LINE; from += LANES) {
                lanes w[LANES];
                lanes_load_columns(rows + g * LANES, from, w);
#pragma GCC unroll 16
                for (int i = 0; i < LANES; i++)
                    for (int v = 0; v < n_vectors; v++)
                        acc[g * n_vectors + v] =
                            lanes_fma(lanes_of(x[v * ldx + from + i]), w[i], acc[g * n_vectors + v]);
            }
        }
    }
    for (; k < n; k += LANES)
#pragma GCC unroll 4
        for (int g = 0; g < n_groups; g++)
            last_columns(hc_min(n - k, LANES), k, rows + g * LANES, n_vectors, x, ldx, acc + g * n_vectors);
    for (int g = 0; g < n_groups; g++)
        for (int v = 0; v < n_vectors; v++)
            lanes_store(out + v * HC_GEMV_DENSE_ROWS + g * LANES, acc[g * n_vectors + v]);
}

#ifdef HC_STAGES
/* Rows that are a multiple of 4 KiB apart, or nearly: their lines have the same place in L1 and L2, which take them one
 * after the other. So each line step copies 8 lines of two rows, whose places differ, and multiplies columns that were
 * copied before. Halves of rows are joined on the way. */
enum { STAGED_ROWS = 16, PAIRS = 8, STAGED = 128 /* columns */, STAGE = 2 * STAGED + LINE, PAGE = 4096, NEAR = 8 };

INLINE bool is_staged(int64_t n, int64_t n_rows, const float *const *rows) {
    if (n < 2 * STAGED || n_rows < STAGED_ROWS)
        return false;
    const int64_t apart = (const char *)rows[1] - (const char *)rows[0];
    return (uint64_t)(apart + NEAR) % PAGE <= 2 * NEAR;
}

/* n columns of a pair of rows, halves of lines side by side. */
INLINE void copy_pair(const float *low, const float *high, int64_t n, float *to) {
    for (int64_t k = 0; k < n; k += LINE, to += 2 * LINE) {
        lanes_store(to, lanes_halves(low + k, high + k));
        lanes_store(to + LINE, lanes_halves(low + k + LINE / 2, high + k + LINE / 2));
        __builtin_prefetch(low + k + 3 * STAGED, 0, 2);
        __builtin_prefetch(high + k + 3 * STAGED, 0, 2);
    }
}

INLINE void multiply_staged(int64_t n, const float *const *rows, int n_vectors, const float *x, int64_t ldx,
                            float *out) {
    _Alignas(64) float stage[2][PAIRS * STAGE];
    lanes acc[SUMS];
    for (int v = 0; v < n_vectors; v++)
        acc[v] = lanes_of(0);
    const int64_t whole = n / LINE * LINE;
    for (int i = 0; i < PAIRS; i++)
        copy_pair(rows[i + (i & 4)], rows[i + (i & 4) + 4], STAGED, stage[0] + i * STAGE);
    for (int64_t first = 0; first < whole; first += STAGED) {
        const float *const now = stage[first / STAGED % 2];
        float *const then = stage[1 - first / STAGED % 2];
        const int64_t next = first + STAGED, n_next = hc_max(hc_min(STAGED, whole - next), 0);
        for (int64_t k = 0; k < hc_min(STAGED, whole - first); k += LINE) {
            const int pair = (int)(k / LINE), row = pair + (pair & 4);
            copy_pair(rows[row] + next, rows[row + 4] + next, n_next, then + pair * STAGE);
#pragma GCC unroll 2
            for (int half = 0; half < 2; half++) {
                lanes a[PAIRS], w[PAIRS];
#pragma GCC unroll 8
                for (int i = 0; i < PAIRS; i++)
                    a[i] = lanes_load(now + i * STAGE + 2 * k + half * LINE);
                lanes_of_halves(a, w);
#pragma GCC unroll 8
                for (int i = 0; i < PAIRS; i++)
                    for (int v = 0; v < n_vectors; v++)
                        acc[v] = lanes_fma(lanes_of(x[v * ldx + first + k + PAIRS * half + i]), w[i], acc[v]);
            }
        }
    }
    for (int64_t k = whole; k < n; k += LANES)
        last_columns(hc_min(n - k, LANES), k, rows, n_vectors, x, ldx, acc);
    for (int v = 0; v < n_vectors; v++)
        lanes_store(out + v * HC_GEMV_DENSE_ROWS, acc[v]);
}
#endif

#ifdef HC_WEAVES
/* Groups of rows that are equally far apart: 4 columns of a group, then 4 of the next, so chains of several groups are
 * close in the code, and no pointers to rows are loaded. Of rows a multiple of 2 KiB apart, the lines of a column share
 * sets of L1, so groups multiply lines that are two lines apart. */
enum { QUAD = 4, BETWEEN = 2 * LINE, SHARED = 2048, CLOSE = 4 /* bytes */ };

/* 4 columns of a group; low and high are its first and its fifth row. */
INLINE void multiply_quad(const float *low, const float *high, int64_t apart, int n_vectors, const float *x,
                          int64_t ldx, lanes *acc) {
    lanes w[QUAD];
    const float *const rows[] = {low,  low + apart,  low + 2 * apart,  low + 3 * apart,
                                 high, high + apart, high + 2 * apart, high + 3 * apart};
    lanes_load_quad(rows, 0, w);
#pragma GCC unroll 4
    for (int i = 0; i < QUAD; i++)
        for (int v = 0; v < n_vectors; v++)
            acc[v] = lanes_fma(lanes_of(x[v * ldx + i]), w[i], acc[v]);
}

/* LANES x n_groups rows; group g is (n_groups - 1 - g) * between columns ahead of the last. */
INLINE void multiply_woven(int64_t n, const float *const *rows, int64_t between, int n_groups, int n_vectors,
                           const float *x, int64_t ldx, float *out) {
    lanes acc[SUMS];
    const float *low[SUMS], *high[SUMS];
    const int64_t apart = rows[1] - rows[0], together = (n - between * (n_groups - 1)) / QUAD * QUAD;
    for (int i = 0; i < SUMS; i++)
        acc[i] = lanes_of(0);
    for (int g = 0; g < n_groups; g++) {
        const int64_t ahead = between * (n_groups - 1 - g);
        low[g] = rows[g * LANES];
        high[g] = rows[g * LANES + 4];
        for (int64_t k = 0; k < ahead; k += QUAD, low[g] += QUAD, high[g] += QUAD)
            multiply_quad(low[g], high[g], apart, n_vectors, x + k, ldx, acc + g * n_vectors);
    }
    for (int64_t k = 0; k < together; k += QUAD)
#pragma GCC unroll 4
        for (int g = 0; g < n_groups; g++)
            multiply_quad(low[g] + k, high[g] + k, apart, n_vectors, x + k + between * (n_groups - 1 - g), ldx,
                          acc + g * n_vectors);
    for (int g = 0; g < n_groups; g++) {
        int64_t k = together + between * (n_groups - 1 - g);
        for (; k + QUAD <= n; k += QUAD)
            multiply_quad(rows[g * LANES] + k, rows[g * LANES + 4] + k, apart, n_vectors, x + k, ldx,
                          acc + g * n_vectors);
        if (k < n)
            last_columns(n - k, k, rows + g * LANES, n_vectors, x, ldx, acc + g * n_vectors);
        for (int v = 0; v < n_vectors; v++)
            lanes_store(out + v * HC_GEMV_DENSE_ROWS + g * LANES, acc[g * n_vectors + v]);
    }
}

/* The first rows, as long as they are equally far apart; returns their number. */
INLINE int multiply_even_rows(int64_t n, int n_rows, const float *const *rows, int n_groups, int n_vectors,
                              const float *x, int64_t ldx, float *out) {
    const int64_t apart = (const char *)rows[1] - (const char *)rows[0];
    const bool shares = (uint64_t)(apart + CLOSE) % SHARED <= 2 * CLOSE;
    int even = 1, first = 0;
    while (even < n_rows && (const char *)rows[even] - (const char *)rows[even - 1] == apart)
        even++;
    if (apart % (int64_t)sizeof *x != 0 || (shares && n < 2 * SUMS * BETWEEN))
        return 0;
    for (; first + n_groups * LANES <= even; first += n_groups * LANES)
        if (shares)
            multiply_woven(n, rows + first, BETWEEN, n_groups, n_vectors, x, ldx, out + first);
        else
            multiply_woven(n, rows + first, 0, n_groups, n_vectors, x, ldx, out + first);
    return first;
}
#endif

/* As many groups at a time as there are rows and sums. */
INLINE void multiply_rows(int64_t n, int n_rows, const float *const *rows, bool is_far, int n_vectors, const float *x,
                          int64_t ldx, float *out) {
    const int most = GROUPS < SUMS / n_vectors ? GROUPS : SUMS / n_vectors;
    int first = 0;
#ifndef HC_WEAVES
    (void)is_far;
#else
    if (most > 1 && !is_far)
        first = multiply_even_rows(n, n_rows, rows, most, n_vectors, x, ldx, out);
    if (most > 2 && !is_far && first + 2 * LANES <= n_rows)
        first += multiply_even_rows(n, n_rows - first, rows + first, 2, n_vectors, x, ldx, out + first);
#endif
#ifdef HC_STAGES
    for (; is_staged(n, n_rows - first, rows + first); first += STAGED_ROWS)
        multiply_staged(n, rows + first, n_vectors, x, ldx, out + first);
#endif
    for (; first + most * LANES <= n_rows; first += most * LANES)
        multiply(n, rows + first, most, n_vectors, x, ldx, out + first);
    for (; most > 1 && first < n_rows; first += LANES)
        if (first > 0 && rows[first - 1] == rows[first] && rows[first] == rows[first + LANES - 1])
            for (int v = 0; v < n_vectors; v++)
                lanes_store(out + v * HC_GEMV_DENSE_ROWS + first, lanes_of(out[v * HC_GEMV_DENSE_ROWS + first - 1]));
        else
            multiply(n, rows + first, 1, n_vectors, x, ldx, out + first);
}

#define HC_GEMV_DENSE(isa)                                                                                             \
    void hc_gemv_dense_##isa(int64_t n, int n_rows, const float *const *rows, bool is_far, int n_vectors,              \
                             const float *x, int64_t ldx, float *out) {                                                \
        if (n_vectors == 1)                                                                                            \
            multiply_rows(n, n_rows, rows, is_far, 1, x, ldx, out);                                                    \
        else if (n_vectors == 2)                                                                                       \
            multiply_rows(n, n_rows, rows, is_far, 2, x, ldx, out);                                                    \
        else                                                                                                           \
            multiply_rows(n, n_rows, rows, is_far, 4, x, ldx, out);                                                    \
    }
