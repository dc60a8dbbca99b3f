/* Integer products of rows of weights as they lie, k beside k: contracts of the kernels that need no panel of them. */
#ifndef HC_KERNELS_ROWS_H
#define HC_KERNELS_ROWS_H

#include "base/base.h"

/* rows_s8:  c[i * ldc + j] = (accumulate ? c[i * ldc + j] : 0) + sum_k x_i[k] * w_j[k], modulo 2^32, of rows as they lie, k
 * beside k: n_x of x, at most the line's mr, which is at most HC_ROWS_X, and any number of w, which are not read behind their
 * last column. Rows of x can be read up to a multiple of HC_ROWS_STEP columns and hold 0 there. x_sums[i] = sum_k x_i[k], for
 * kernels that add 128 or 8 to w. Budget: |x|, |w| <= 128 and 65536 columns keep the true sum inside int32. */
enum { HC_ROWS_X = 8, HC_ROWS_STEP = 64 };
typedef struct {
    int n_x;
    int64_t n_w, columns;
    int64_t ld_x, ld_w, ldc; /* from row to row */
    const int8_t *x, *w;
    const int32_t *x_sums;
    bool accumulate;
    int32_t *c;
    /* Hints for prefetch: the row of w that is wanted when row 0 has had its turn, or NULL; this call is number `part` of
     * `parts` that do it together. */
    const int8_t *next;
    const uint8_t *next_scales; /* rows_s4: likewise those of that row */
    int part, parts;
    bool is_small; /* no |w| is above the kernel's `small`: it may add more of their products before it widens them */
    const uint8_t *scales; /* rows_s4 */
    int64_t ld_scales;
    int words; /* of 32 bits of codes that share a scale: 2, 4 or 8; 0: there are none */
    const int32_t
        *start; /* of x beside scales: -8 times the sum over the 8 columns of each word; one or two rows are faster
                           * with it, or NULL */
    int64_t ld_start;
} hc_rows_s8_args;
typedef void hc_rows_s8_fn(const hc_rows_s8_args *args);

/* rows_s4:  the same of codes of 4 bits as they are stored, two's complement, ld_w in bytes: w_j[k] = scale * code, the
 * unsigned scales of 4 bits at scales + j * ld_scales, or 1. Neither codes nor scales are read behind the last column.
 * x holds of each 128 columns the 64 even ones before the odd ones; it can be read up to a multiple of 128. There
 * is no scalar kernel: rows_s8 of decoded rows is it. */

/* lanes_s8:  c[j * ldc + i] = (accumulate ? c[j * ldc + i] : 0) + sum_k x_i[k] * w_j[k], modulo 2^32: w as in rows_s8, rows of
 * x side by side, x[(k / 4 * lanes + i) * 4 + k % 4] = x_i[k] + 128 as uint8, columns up to a multiple of 4. lanes is a
 * multiple of the line's mr, at most HC_LANES_X of them, or HC_LANES_FEW: then eight columns of a row lie together where
 * otherwise four do. Budget: as rows_s8, at most HC_LANES_COLUMNS columns a call. */
enum { HC_LANES_X = 4, HC_LANES_FEW = 8, HC_LANES_COLUMNS = 2048 };
typedef struct {
    int lanes;
    int64_t n_w, columns;
    int64_t ld_w, ldc;
    const uint8_t *x;
    const int8_t *w;
    bool accumulate;
    int32_t *c;
    const int8_t *next; /* as in rows_s8 */
    int part, parts;
    const uint8_t *scales; /* lanes_s4, as in rows_s4 */
    int64_t ld_scales;
    int words;
} hc_lanes_s8_args;
typedef void hc_lanes_s8_fn(const hc_lanes_s8_args *args);

/* lanes_s4:  the same of the codes of 4 bits that rows_s4 takes, x in its order, columns up to a multiple of 128, where x is 0.
 * No scalar kernel either. */

/* lanes_s8_scaled:  c[j * ldc + i] = fmaf(float(x_scales[i] * w_scales[j * ld_scales + g]), float(dot_g(i, j)), c), groups g of
 * `group` columns ascending, the last maybe shorter; dot_g the exact sum over the group; c starts from +0 or from what it holds.
 * lanes_s8_split:  int32 c[j * ldc + i] += factors[j * ld_scales + g] * dot_g(i, j) likewise, modulo 2^32.
 * x lies as in lanes_s8, signed, 0 behind the last column, w likewise up to a multiple of 4; group is a multiple of 4.
 * start[g * lanes + i] is -128 times the sum of x_i over the group, for kernels that add 128 to w. lanes as there, but not
 * HC_LANES_FEW. There are no scalar kernels: gemm_s8_scaled and gemm_small_split have the same bits. */
typedef struct {
    int lanes;
    int64_t n_w, columns, group;
    int64_t ld_w, ldc, ld_scales;
    const int8_t *x, *w;
    const int32_t *start;
    const float *x_scales, *w_scales; /* lanes_s8_scaled */
    const int32_t *factors;           /* lanes_s8_split */
    bool accumulate;
    void *c;
} hc_lanes_groups_args;
typedef void hc_lanes_groups_fn(const hc_lanes_groups_args *args);

#endif
