/* The matrices of Winograd F(m, 3) and its transforms in one dimension, `dims` 1, and in two, for values of type HC_V: lanes of
 * HC_T, floats or integers, or one for what is left over. Points 0, 1, -1, 2, -2, 1/2, -1/2 (as many as n - 1), infinity. Rows of a point and its
 * negative share their even and their odd terms: even + odd, even - odd. Every sum is a chain, the first term a product,
 * then fused multiply-adds, indices ascending. Included once for each HC_V, which names its functions by HC_NAME and says what
 * a row of G is multiplied with (HC_FIRST, HC_G), and what sums at a place (HC_FACTOR) and answers (HC_WHOLE) are.
 */
#ifndef HC_WINOGRAD_TABLES
#define HC_WINOGRAD_TABLES
/* Rows of B^T that are 0, +p of each pair, infinity; by m / 2 - 1. */
static const float INPUT[3][5][8] = {{{1, 0, -1}, {0, 1, 1}, {0, -1, 0, 1}},
                                     {{4, 0, -5, 0, 1}, {0, -4, -4, 1, 1}, {0, -2, -1, 2, 1}, {0, 4, 0, -5, 0, 1}},
                                     {{1, 0, -5.25f, 0, 5.25f, 0, -1},
                                      {0, 1, 1, -4.25f, -4.25f, 1, 1},
                                      {0, 0.5f, 0.25f, -2.5f, -1.25f, 2, 1},
                                      {0, 2, 4, -2.5f, -5, 0.5f, 1},
                                      {0, -1, 0, 5.25f, 0, -5.25f, 0, 1}}};
/* A^T: powers of p. */
static const float POWER[3][6] = {
    {1, 1, 1, 1, 1, 1}, {1, 2, 4, 8, 16, 32}, {1, 0.5f, 0.25f, 0.125f, 0.0625f, 0.03125f}};
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
HC_INLINE void HC_NAME(input)(int m, const HC_V x[8], HC_V *to, int step) {
    const int kind = m / 2 - 1, n = m + 2;
    to[0] = HC_NAME(chain)(INPUT[kind][0], 0, 1, n, x);
#pragma GCC unroll 3
    for (int pair = 0; pair < m / 2; pair++) {
        const HC_V even = HC_NAME(chain)(INPUT[kind][1 + pair], 2, 2, n, x);
        const HC_V odd = HC_NAME(chain)(INPUT[kind][1 + pair], 1, 2, n, x);
        to[(1 + 2 * pair) * step] = HC_ADD(even, odd);
        to[(2 + 2 * pair) * step] = HC_SUB(even, odd);
    }
    to[(n - 1) * step] = HC_NAME(chain)(INPUT[kind][1 + m / 2], 0, 1, n, x);
}

/* to[i * step] = sum_j G[i, j] x[j] */
HC_INLINE void HC_NAME(filter)(int m, const HC_V x[3], HC_V *to, int step) {
    const int n = m + 2;
    to[0] = HC_MUL(HC_SET(HC_FIRST(m)), x[0]);
#pragma GCC unroll 3
    for (int pair = 0; pair < m / 2; pair++) {
        const float *g = HC_G(m, pair);
        const HC_V even = HC_FMA(HC_SET(g[2]), x[2], HC_MUL(HC_SET(g[0]), x[0]));
        const HC_V odd = HC_MUL(HC_SET(g[1]), x[1]);
        to[(1 + 2 * pair) * step] = HC_ADD(even, odd);
        to[(2 + 2 * pair) * step] = HC_SUB(even, odd);
    }
    to[(n - 1) * step] = x[2];
}

/* to[i * step] = sum_j A^T[i, j] x[j]: point 0, pairs, infinity */
HC_INLINE void HC_NAME(output)(int m, const HC_V x[8], HC_V *to, int step) {
    HC_V sum[3], difference[3];
#pragma GCC unroll 3
    for (int pair = 0; pair < m / 2; pair++) {
        sum[pair] = HC_ADD(x[1 + 2 * pair], x[2 + 2 * pair]);
        difference[pair] = HC_SUB(x[1 + 2 * pair], x[2 + 2 * pair]);
    }
#pragma GCC unroll 6
    for (int i = 0; i < m; i++) {
        HC_V y = i == 0 ? HC_ADD(x[0], sum[0]) : i % 2 ? difference[0] : sum[0];
#pragma GCC unroll 2
        for (int pair = 1; pair < m / 2; pair++)
            y = HC_FMA(HC_SET(POWER[pair][i]), i % 2 ? difference[pair] : sum[pair], y);
        to[i * step] = i == m - 1 ? HC_ADD(y, x[m + 1]) : y;
    }
}

HC_INLINE void HC_NAME(input_tile)(int m, int dims, const HC_T *const *pixel, int64_t c, HC_T *v, int64_t step) {
    const int n = m + 2, across = dims == 2 ? n : 1;
    HC_V x[8], down[64];
#pragma GCC unroll 8
    for (int w = 0; w < across; w++) {
#pragma GCC unroll 8
        for (int h = 0; h < n; h++)
            x[h] = HC_LOAD(pixel[h * across + w] + c);
        HC_NAME(input)(m, x, down + w, across);
    }
#pragma GCC unroll 8
    for (int i = 0; i < n; i++) {
        if (dims == 2)
            HC_NAME(input)(m, down + i * n, x, 1);
        else
            x[0] = down[i];
#pragma GCC unroll 8
        for (int j = 0; j < across; j++)
            HC_STORE(v + (i * across + j) * step + c, x[j]);
    }
}

HC_INLINE void HC_NAME(filter_tile)(int m, int dims, const HC_T *taps, int64_t tap_step, HC_T *u, int64_t step) {
    const int n = m + 2, of_row = dims == 2 ? 3 : 1, across = dims == 2 ? n : 1;
    HC_V x[8], down[24];
#pragma GCC unroll 3
    for (int s = 0; s < of_row; s++) {
#pragma GCC unroll 3
        for (int r = 0; r < 3; r++)
            x[r] = HC_LOAD(taps + (r * of_row + s) * tap_step);
        HC_NAME(filter)(m, x, down + s, of_row);
    }
#pragma GCC unroll 8
    for (int i = 0; i < n; i++) {
        if (dims == 2)
            HC_NAME(filter)(m, down + i * 3, x, 1);
        else
            x[0] = down[i];
#pragma GCC unroll 8
        for (int j = 0; j < across; j++)
            HC_STORE(u + (i * across + j) * step, x[j]);
    }
}

HC_INLINE void HC_NAME(output_tile)(int m, int dims, const HC_T *y, int64_t step, int64_t f, const HC_T *bias,
                                    bool relu, HC_T *const *answer) {
    const int n = m + 2, across = dims == 2 ? n : 1, answers = dims == 2 ? m : 1;
    HC_V x[8], down[48];
#pragma GCC unroll 8
    for (int j = 0; j < across; j++) {
#pragma GCC unroll 8
        for (int i = 0; i < n; i++)
            x[i] = HC_FACTOR(m, i, HC_LOAD(y + (i * across + j) * step + f));
        HC_NAME(output)(m, x, down + j, across);
    }
#pragma GCC unroll 6
    for (int p = 0; p < m; p++) {
        HC_V whole[6];
        if (dims == 2) {
#pragma GCC unroll 8
            for (int j = 0; j < n; j++)
                x[j] = HC_FACTOR(m, j, down[p * n + j]);
            HC_NAME(output)(m, x, whole, 1);
        } else {
            whole[0] = down[p];
        }
#pragma GCC unroll 6
        for (int q = 0; q < answers; q++) {
            if (!answer[p * answers + q])
                continue;
            HC_V value = HC_WHOLE(m, dims, whole[q]);
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
