/* rows_s8 for any registers: k in lanes, n_w rows of w by n_x rows of x, as many sums as there are registers. Included
 * after the definitions of
 *
 *   vector, STEP, ADDED       registers, columns of a step, the bias that load_w and load_w_tail add to w: 0 or 128
 *   load_w, load_w_tail       STEP columns of w in the form of dot; n of them, 0 (plus ADDED) instead of the others
 *   load_x, dot, fold, put    of x; sum + w x; the sum of each of 4 sums; n of these into c
 */
#ifndef HC_ROWS_S8_H
#define HC_ROWS_S8_H

INLINE void add_step(int n_x, int n_w, const vector *codes, const int8_t *x, int64_t ld_x, vector sum[][4]) {
#pragma GCC unroll 8
    for (int i = 0; i < n_x; i++) {
        const vector values = load_x(x + i * ld_x);
#pragma GCC unroll 4
        for (int b = 0; b < n_w; b++)
            sum[i][b] = dot(sum[i][b], codes[b], values);
    }
}

INLINE void multiply(const hc_rows_s8_args *args, const int n_x, const int n_w) {
    const int64_t whole = args->columns / STEP * STEP, tail = args->columns - whole;
    const int64_t ld_x = args->ld_x, ld_w = args->ld_w;
    const int8_t *x = args->x;
    int until = args->part; /* blocks of rows until the next block that prefetches */
    for (int64_t j = 0; j < args->n_w; j += n_w) {
        const int rows = (int)hc_min(n_w, args->n_w - j);
        const int8_t *w[4];
        vector sum[HC_ROWS_X][4], codes[4];
        uintptr_t next = 0;
        if (args->next && until-- == 0) {
            /* possibly after the last row, which a prefetch ignores */
            next = (uintptr_t)args->next + (uintptr_t)(j * ld_w);
            until = args->parts - 1;
        }
#pragma GCC unroll 4
        for (int b = 0; b < n_w; b++)
            w[b] = args->w + (j + hc_min(b, rows - 1)) * ld_w;
#pragma GCC unroll 8
        for (int i = 0; i < n_x; i++)
#pragma GCC unroll 4
            for (int b = 0; b < 4; b++)
                sum[i][b] = (vector){0};
        int64_t k = 0;
        for (; k < whole; k += STEP) {
#pragma GCC unroll 4
            for (int b = 0; b < n_w; b++)
                codes[b] = load_w(w[b] + k);
            if (next) {
#pragma GCC unroll 4
                for (int b = 0; b < n_w; b++)
                    _mm_prefetch((const char *)(next + (uintptr_t)(b * ld_w + k)), _MM_HINT_T1);
            }
            add_step(n_x, n_w, codes, x + k, ld_x, sum);
        }
        if (tail) {
#pragma GCC unroll 4
            for (int b = 0; b < n_w; b++)
                codes[b] = load_w_tail(w[b] + k, (int)tail);
            add_step(n_x, n_w, codes, x + k, ld_x, sum);
        }
#pragma GCC unroll 8
        for (int i = 0; i < n_x; i++) {
            const uint32_t shift = (uint32_t)args->x_sums[i] * ADDED;
            put(args->c + i * args->ldc + j, rows, fold(sum[i]), (int32_t)shift, args->accumulate);
        }
    }
}

#endif
