/* gemv_dense: LANES rows in lanes; blocks of LANES columns are transposed. Independent sums hide the latency of fma: up
 * to SUMS, of several groups of rows or several vectors. Included after a header of base/lanes/ and AHEAD, the distance
 * of the prefetch in columns, or 0. */
#include "kernels/kernel.h"

#define INLINE static inline __attribute__((always_inline))

enum { SUMS = 4, BLOCKS = HC_GEMV_DENSE_ROWS / LANES };

/* LANES x n_groups rows; n_groups x n_vectors is at most SUMS. */
INLINE void multiply(int64_t n, const float *const *rows, int n_groups, int n_vectors, const float *x, int64_t ldx,
                     float *out) {
    lanes acc[SUMS];
    for (int i = 0; i < SUMS; i++)
        acc[i] = lanes_of(0);
    for (int64_t k = 0; k < n; k += LANES) {
        const int64_t steps = hc_min(n - k, LANES);
#pragma GCC unroll 4
        for (int g = 0; g < n_groups; g++) {
            lanes w[LANES];
#pragma GCC unroll 16
            for (int i = 0; i < LANES; i++) {
                const float *row = rows[g * LANES + i] + k;
                w[i] = steps == LANES ? lanes_load(row) : lanes_load_some(row, steps);
                if (AHEAD > 0 && k % 16 == 0)
                    __builtin_prefetch(row + AHEAD, 0, 2);
            }
            lanes_transpose(w);
            if (steps == LANES) {
#pragma GCC unroll 16
                for (int i = 0; i < LANES; i++)
                    for (int v = 0; v < n_vectors; v++)
                        acc[g * n_vectors + v] = lanes_fma(lanes_of(x[v * ldx + k + i]), w[i], acc[g * n_vectors + v]);
                continue;
            }
            for (int64_t i = 0; i < steps; i++)
                for (int v = 0; v < n_vectors; v++)
                    acc[g * n_vectors + v] = lanes_fma(lanes_of(x[v * ldx + k + i]), w[i], acc[g * n_vectors + v]);
        }
    }
    for (int g = 0; g < n_groups; g++)
        for (int v = 0; v < n_vectors; v++)
            lanes_store(out + v * HC_GEMV_DENSE_ROWS + g * LANES, acc[g * n_vectors + v]);
}

INLINE void multiply_rows(int64_t n, const float *const *rows, int n_vectors, const float *x, int64_t ldx, float *out) {
    const int groups = BLOCKS < SUMS / n_vectors ? BLOCKS : SUMS / n_vectors;
    for (int first = 0; first < HC_GEMV_DENSE_ROWS; first += groups * LANES)
        multiply(n, rows + first, groups, n_vectors, x, ldx, out + first);
}

#define HC_GEMV_DENSE(isa)                                                                                             \
    void hc_gemv_dense_##isa(int64_t n, const float *const *rows, int n_vectors, const float *x, int64_t ldx,          \
                             float *out) {                                                                             \
        if (n_vectors == 1)                                                                                            \
            multiply_rows(n, rows, 1, x, ldx, out);                                                                    \
        else if (n_vectors == 2)                                                                                       \
            multiply_rows(n, rows, 2, x, ldx, out);                                                                    \
        else                                                                                                           \
            multiply_rows(n, rows, 4, x, ldx, out);                                                                    \
    }
