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

#ifdef HC_STAGED
#include HC_STAGED
#endif

/* As many groups at a time as there are rows and sums. */
INLINE void multiply_rows(int64_t n, int n_rows, const float *const *rows, int n_vectors, const float *x, int64_t ldx,
                          float *out) {
    const int most = GROUPS < SUMS / n_vectors ? GROUPS : SUMS / n_vectors;
    int first = 0;
#ifdef HC_STAGED
    for (; is_staged(n, n_rows - first, rows + first); first += STAGED_ROWS)
        multiply_staged(n, rows + first, n_vectors, x, ldx, out + first);
#endif
    for (; first + most * LANES <= n_rows; first += most * LANES)
        multiply(n, rows + first, most, n_vectors, x, ldx, out + first);
    for (; most > 1 && first < n_rows; first += LANES)
        multiply(n, rows + first, 1, n_vectors, x, ldx, out + first);
}

#define HC_GEMV_DENSE(isa)                                                                                             \
    void hc_gemv_dense_##isa(int64_t n, int n_rows, const float *const *rows, int n_vectors, const float *x,           \
                             int64_t ldx, float *out) {                                                                \
        if (n_vectors == 1)                                                                                            \
            multiply_rows(n, n_rows, rows, 1, x, ldx, out);                                                            \
        else if (n_vectors == 2)                                                                                       \
            multiply_rows(n, n_rows, rows, 2, x, ldx, out);                                                            \
        else                                                                                                           \
            multiply_rows(n, n_rows, rows, 4, x, ldx, out);                                                            \
    }
