/* Rows of gemv_dense that are a multiple of 4 KiB apart, or nearly: their lines have the same place in L1 and L2, which take
 * them one after the other. So each line step copies 8 lines of two rows, whose places differ, and multiplies columns that
 * were copied before. Halves of rows are joined on the way. Included by gemv_dense.h. */

enum { STAGED_ROWS = 16, PAIRS = 8, STAGED = 128 /* columns */, STAGE = 2 * STAGED + LINE, PAGE = 4096, NEAR = 32 };

INLINE bool is_staged(int64_t n, int64_t n_rows, const float *const *rows) {
    if (n < 2 * STAGED || n_rows < STAGED_ROWS)
        return false;
    const int64_t apart = (const char *)rows[1] - (const char *)rows[0];
    return (uint64_t)(apart + NEAR) % PAGE < 2 * NEAR;
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
