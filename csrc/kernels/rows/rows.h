/* Integer matmuls with rows of weights in their order, contiguous along k: definitions of the kernels that need no
 * panel of weights. */
#ifndef HC_KERNELS_ROWS_H
#define HC_KERNELS_ROWS_H

#include "base/base.h"

/* rows_s8: c[i * ldc + j] = (accumulate ? c[i * ldc + j] : 0) + sum_k x_i[k] * w_j[k], modulo 2^32, of rows that are
 * contiguous along k: n_x rows of x, at most the kernel's mr, which is at most HC_ROWS_X, and any number of rows of w,
 * which are not read after their last column. Rows of x can be read up to a multiple of HC_ROWS_STEP columns and hold 0
 * there. x_sums[i] = sum_k x_i[k], for kernels that add 128 or 8 to w. Budget: |x|, |w| <= 128 and 65536 columns keep
 * the true sum inside int32. */
enum { HC_ROWS_X = 8, HC_ROWS_STEP = 64 };
typedef struct {
    int n_x;
    int64_t n_w, columns;
    int64_t ld_x, ld_w, ldc; /* from row to row */
    const int8_t *x, *w;
    const int32_t *x_sums;
    bool accumulate;
    int32_t *c;
    /* Hints for prefetch: the row of w that is read after row 0, or NULL; this call is number `part` of `parts` calls
     * that prefetch it together. */
    const int8_t *next;
    const uint8_t *next_scales; /* rows_s4: likewise those of that row */
    int part, parts;
    bool is_small;         /* no |w| is above the kernel's `small`, so it may add more products before it widens them */
    const uint8_t *scales; /* rows_s4 */
    int64_t ld_scales;
    int words; /* 32-bit words of codes that share a scale: 2, 4 or 8; 0: there are no scales */
    /* of x, with scales: -8 times the sum over the 8 columns of each word, or NULL; one or two rows are faster with
     * it */
    const int32_t *start;
    int64_t ld_start;
} hc_rows_s8_args;
typedef void hc_rows_s8_fn(const hc_rows_s8_args *args);

/* rows_s4: the same for two's complement 4-bit codes as they are stored, ld_w in bytes: w_j[k] = scale * code, the
 * unsigned scales of 4 bits at scales + j * ld_scales, or 1. Codes and scales are not read after the last column. In
 * each 128 columns of x the 64 even ones come before the odd ones. x can be read up to a multiple of 128. There is no
 * scalar kernel: rows_s8 of decoded rows is the definition. */

/* lanes_s8: c[j * ldc + i] = (accumulate ? c[j * ldc + i] : 0) + sum_k x_i[k] * w_j[k], modulo 2^32: w as in rows_s8,
 * rows of x in lanes, x[(k / 4 * lanes + i) * 4 + k % 4] = x_i[k] + 128 as uint8, columns up to a multiple of 4. lanes
 * is a multiple of the kernel's mr, at most HC_LANES_X times mr, or HC_LANES_FEW: then eight columns of a row are
 * contiguous, otherwise four. Budget: as rows_s8, at most HC_LANES_COLUMNS columns per call. */
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

/* lanes_s4:  the same for the 4-bit codes of rows_s4, with x in the order of rows_s4, columns up to a multiple of 128,
 * where x is 0. There is no scalar kernel either. */

/* lanes_s8_scaled: c[j * ldc + i] = fmaf(float(x_scales[i] * w_scales[j * ld_scales + g]), float(dot_g(i, j)), c),
 * groups g of `group` columns ascending, of which the last may be shorter; dot_g the exact sum over the group; c starts
 * from +0 or from its contents. lanes_s8_split: int32 c[j * ldc + i] += factors[j * ld_scales + g] * dot_g(i, j)
 * likewise, modulo 2^32. x has the layout of lanes_s8, signed, and is 0 after the last column; w also is, up to a
 * multiple of 4; group is a multiple of 4. start[g * lanes + i] is -128 times the sum of x_i over the group, for
 * kernels that add 128 to w. lanes as in lanes_s8, except HC_LANES_FEW. There are no scalar kernels: gemm_s8_scaled and
 * gemm_small_split have the same bits. */
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
