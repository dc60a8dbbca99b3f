/* Dot products of rows, signed times signed, for any dot of bytes: 4 rows of w by up to 4 rows of x, 16 columns per
 * step. Included after the definition of dot(sum, a, b), which adds the products of bytes to lanes of the sum.
 */
#ifndef HC_ROWS_S8_ARM_H
#define HC_ROWS_S8_ARM_H

#include <string.h>

enum { NX = 4, NW = 4, STEP = 16 };

static inline void add_step(const int8x16_t *codes, int n_x, const int8_t *x, int64_t ld_x, int32x4_t sum[NX][NW]) {
    for (int i = 0; i < n_x; i++) {
        const int8x16_t values = vld1q_s8(x + i * ld_x);
        for (int b = 0; b < NW; b++)
            sum[i][b] = dot(sum[i][b], codes[b], values);
    }
}

static inline void multiply(const hc_rows_s8_args *args, int first, const int n_x) {
    const int64_t whole = args->columns / STEP * STEP;
    const int8_t *x = args->x + first * args->ld_x;
    for (int64_t j = 0; j < args->n_w; j += NW) {
        const int rows = (int)hc_min(NW, args->n_w - j);
        const int8_t *w[NW];
        int8x16_t codes[NW];
        int32x4_t sum[NX][NW];
        for (int b = 0; b < NW; b++)
            w[b] = args->w + (j + hc_min(b, rows - 1)) * args->ld_w;
        for (int i = 0; i < n_x; i++)
            for (int b = 0; b < NW; b++)
                sum[i][b] = vdupq_n_s32(0);
        for (int64_t k = 0; k < whole; k += STEP) {
            for (int b = 0; b < NW; b++)
                codes[b] = vld1q_s8(w[b] + k);
            add_step(codes, n_x, x + k, args->ld_x, sum);
        }
        if (whole < args->columns) {
            for (int b = 0; b < NW; b++) {
                int8_t bytes[STEP] = {0};
                memcpy(bytes, w[b] + whole, (size_t)(args->columns - whole));
                codes[b] = vld1q_s8(bytes);
            }
            add_step(codes, n_x, x + whole, args->ld_x, sum);
        }
        for (int i = 0; i < n_x; i++)
            for (int b = 0; b < rows; b++) {
                int32_t *c = args->c + (first + i) * args->ldc + j + b;
                *c = (int32_t)((uint32_t)vaddvq_s32(sum[i][b]) + (args->accumulate ? (uint32_t)*c : 0));
            }
    }
}

static inline void rows_s8(const hc_rows_s8_args *args) {
    for (int first = 0; first < args->n_x; first += NX)
        switch (hc_min(NX, args->n_x - first)) {
        case 1:
            multiply(args, first, 1);
            break;
        case 2:
            multiply(args, first, 2);
            break;
        case 3:
            multiply(args, first, 3);
            break;
        default:
            multiply(args, first, NX);
            break;
        }
}

#endif
