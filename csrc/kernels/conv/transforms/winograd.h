/* The matrices of Winograd F(m, r), n = m + r - 1, and its transforms in one dimension, `dims` 1, and in two, for
 * values of type HC_V: lanes of HC_T, floats or integers, or one value for the rest. Points 0, 1, -1, 2, -2, 1/2, -1/2
 * (the first n - 1), infinity. There is one B^T per n; r columns of G and m rows of A^T are used. The rows of a point
 * and its negative share their even and their odd terms: even + odd, even - odd. Every sum is a chain: the first term
 * is a product, followed by fused multiply-adds, indices ascending. Included once per HC_V, with HC_NAME for the names
 * of its functions. The including file also defines the factors of rows of G (HC_FIRST, HC_G), of sums at a position
 * (HC_FACTOR) and of outputs (HC_WHOLE).
 */
#ifndef HC_WINOGRAD_TABLES
#define HC_WINOGRAD_TABLES
/* Rows of B^T that are 0, +p of each pair, infinity; by n / 2 - 2. */
static const float INPUT[3][5][8] = {{{1, 0, -1}, {0, 1, 1}, {0, -1, 0, 1}},
                                     {{4, 0, -5, 0, 1}, {0, -4, -4, 1, 1}, {0, -2, -1, 2, 1}, {0, 4, 0, -5, 0, 1}},
                                     {{1, 0, -5.25f, 0, 5.25f, 0, -1},
                                      {0, 1, 1, -4.25f, -4.25f, 1, 1},
                                      {0, 0.5f, 0.25f, -2.5f, -1.25f, 2, 1},
                                      {0, 2, 4, -2.5f, -5, 0.5f, 1},
                                      {0, -1, 0, 5.25f, 0, -5.25f, 0, 1}}};
/* A^T: powers of p. */
static const float POWER[3][7] = {
    {1, 1, 1, 1, 1, 1, 1}, {1, 2, 4, 8, 16, 32, 64}, {1, 0.5f, 0.25f, 0.125f, 0.0625f, 0.03125f, 0.015625f}};
#define HC_INLINE __attribute__((always_inline)) static inline
#endif

HC_INLINE HC_V HC_NAME(chain)(const float row[8], int first, int step, int n, const HC_V x[8]) {
    HC_V sum = HC_SET(0);
    bool begun = false;
#pragma GCC unroll 8
    for (int i = first; i < n; i += step)
        if (row[i] != 0) {
            sum = begun ? HC_FMA(HC_SET(row[i]), x[i], sum) : HC_MUL(HC_SET(row[i]), x[i]);
            begun = true;
        }
    return sum;
}

/* to[i * step] = sum_j B^T[i, j] x[j] */
HC_INLINE void HC_NAME(input)(int n, const HC_V x[8], HC_V *to, int step) {
    const int kind = n / 2 - 2;
    to[0] = HC_NAME(chain)(INPUT[kind][0], 0, 1, n, x);
#pragma GCC unroll 3
    for (int pair = 0; pair < n / 2 - 1; pair++) {
        const HC_V even = HC_NAME(chain)(INPUT[kind][1 + pair], 2, 2, n, x);
        const HC_V odd = HC_NAME(chain)(INPUT[kind][1 + pair], 1, 2, n, x);
        to[(1 + 2 * pair) * step] = HC_ADD(even, odd);
        to[(2 + 2 * pair) * step] = HC_SUB(even, odd);
    }
    to[(n - 1) * step] = HC_NAME(chain)(INPUT[kind][n / 2], 0, 1, n, x);
}

/* to[i * step] = sum_j G[i, j] x[j] */
HC_INLINE void HC_NAME(filter)(int n, int r, const HC_V x[4], HC_V *to, int step) {
    to[0] = HC_MUL(HC_SET(HC_FIRST(n)), x[0]);
#pragma GCC unroll 3
    for (int pair = 0; pair < n / 2 - 1; pair++) {
        const float *g = HC_G(n, pair);
        HC_V even = HC_MUL(HC_SET(g[0]), x[0]), odd = HC_MUL(HC_SET(g[1]), x[1]);
        if (r > 2)
            even = HC_FMA(HC_SET(g[2]), x[2], even);
        if (r > 3)
            odd = HC_FMA(HC_SET(g[3]), x[3], odd);
        to[(1 + 2 * pair) * step] = HC_ADD(even, odd);
        to[(2 + 2 * pair) * step] = HC_SUB(even, odd);
    }
    to[(n - 1) * step] = x[r - 1];
}

/* to[i * step] = sum_j A^T[i, j] x[j]: point 0, pairs, infinity */
HC_INLINE void HC_NAME(output)(int n, int r, const HC_V x[8], HC_V *to, int step) {
    const int m = n - r + 1;
    HC_V sum[3], difference[3];
#pragma GCC unroll 3
    for (int pair = 0; pair < n / 2 - 1; pair++) {
        sum[pair] = HC_ADD(x[1 + 2 * pair], x[2 + 2 * pair]);
        difference[pair] = HC_SUB(x[1 + 2 * pair], x[2 + 2 * pair]);
    }
#pragma GCC unroll 7
    for (int i = 0; i < m; i++) {
        HC_V y = i == 0 ? HC_ADD(x[0], sum[0]) : i % 2 ? difference[0] : sum[0];
#pragma GCC unroll 2
        for (int pair = 1; pair < n / 2 - 1; pair++)
            y = HC_FMA(HC_SET(POWER[pair][i]), i % 2 ? difference[pair] : sum[pair], y);
        to[i * step] = i == m - 1 ? HC_ADD(y, x[n - 1]) : y;
    }
}

/* From channel c on: `some` of the lanes are read, all are written. */
HC_INLINE void HC_NAME(input_tile)(int n, int dims, const HC_T *const *pixel, int64_t c, int some, HC_T *v,
                                   int64_t step) {
    const int across = dims == 2 ? n : 1;
    HC_V x[8], down[64];
#pragma GCC unroll 8
    for (int w = 0; w < across; w++) {
#pragma GCC unroll 8
        for (int h = 0; h < n; h++)
            x[h] = HC_LOAD_SOME(pixel[h * across + w] + c, some);
        HC_NAME(input)(n, x, down + w, across);
    }
#pragma GCC unroll 8
    for (int i = 0; i < n; i++) {
        if (dims == 2)
            HC_NAME(input)(n, down + i * n, x, 1);
        else
            x[0] = down[i];
#pragma GCC unroll 8
        for (int j = 0; j < across; j++)
            HC_STORE(v + (i * across + j) * step + c, x[j]);
    }
}

/* From value f on. If the last row or column of taps is NULL, there is no value at infinity, and nothing is written
 * there. */
HC_INLINE void HC_NAME(filter_tile)(int n, int r, int dims, const HC_T *const *tap, int64_t f, HC_T *u, int64_t step) {
    const int of_row = dims == 2 ? r : 1, across = dims == 2 ? n : 1;
    const int rows = tap[(r - 1) * of_row] ? n : n - 1, columns = tap[of_row - 1] ? across : across - 1;
    HC_V x[8], down[32];
#pragma GCC unroll 4
    for (int s = 0; s < of_row; s++) {
#pragma GCC unroll 4
        for (int i = 0; i < r; i++)
            x[i] = tap[i * of_row + s] ? HC_LOAD(tap[i * of_row + s] + f) : HC_SET(0);
        HC_NAME(filter)(n, r, x, down + s, of_row);
    }
#pragma GCC unroll 8
    for (int i = 0; i < n; i++) {
        if (i >= rows)
            break;
        if (dims == 2)
            HC_NAME(filter)(n, r, down + i * r, x, 1);
        else
            x[0] = down[i];
#pragma GCC unroll 8
        for (int j = 0; j < across; j++)
            if (j < columns)
                HC_STORE(u + (i * across + j) * step + f, x[j]);
    }
}

HC_INLINE void HC_NAME(output_tile)(int n, int r, int dims, const HC_T *y, int64_t step, int64_t f, const HC_T *bias,
                                    bool relu, HC_T *const *answer) {
    const int m = n - r + 1, across = dims == 2 ? n : 1, answers = dims == 2 ? m : 1;
    HC_V x[8], down[56];
#pragma GCC unroll 8
    for (int j = 0; j < across; j++) {
#pragma GCC unroll 8
        for (int i = 0; i < n; i++)
            x[i] = HC_FACTOR(n, i, HC_LOAD(y + (i * across + j) * step + f));
        HC_NAME(output)(n, r, x, down + j, across);
    }
#pragma GCC unroll 7
    for (int p = 0; p < m; p++) {
        HC_V whole[7];
        if (dims == 2) {
#pragma GCC unroll 8
            for (int j = 0; j < n; j++)
                x[j] = HC_FACTOR(n, j, down[p * n + j]);
            HC_NAME(output)(n, r, x, whole, 1);
        } else {
            whole[0] = down[p];
        }
#pragma GCC unroll 7
        for (int q = 0; q < answers; q++) {
            if (!answer[p * answers + q])
                continue;
            HC_V value = HC_WHOLE(n, dims, whole[q]);
            value = bias ? HC_ADD(value, HC_LOAD(bias + f)) : value;
            value = relu ? HC_RELU(value) : value;
            HC_STORE(answer[p * answers + q] + f, value);
        }
    }
}
#undef HC_T
#undef HC_V
#undef HC_NAME
#undef HC_LOAD
#undef HC_LOAD_SOME
#undef HC_STORE
#undef HC_SET
#undef HC_ADD
#undef HC_SUB
#undef HC_MUL
#undef HC_FMA
#undef HC_RELU
#undef HC_FIRST
#undef HC_G
#undef HC_FACTOR
#undef HC_WHOLE
