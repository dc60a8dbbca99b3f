/* Rounding with the inputs of a layer: sums of inputs, their factor, and the operations on columns of weights that use
 * the factor. Weights are transposed, (columns, rows): a column is one input of all rows, and rows are lanes. Every sum
 * has an order that is stated here and in heterocompute/reference/ptq.py, so that codes are the same on every machine
 * and for any number of threads: those over inputs or columns, with an entry of H or of its factor, are chains of one
 * fused multiply-add each, in all others the product is rounded, then the sum. The equations: docs/ptq.md.
 */
#ifndef HC_PTQ_H
#define HC_PTQ_H

#include "base/base.h"

/* The values to which a column is rounded. value = scale * (code - zero), low <= code <= high, or scale * level[code];
 * or the nearest float32, whose bits are the code. A value that `mask` removes is 0, and its code is ignored. */
typedef struct {
    int64_t columns, rows, n_groups;
    const int32_t *group; /* (columns), from 0, not falling */
    double *scale;        /* (n_groups, rows), >= 0 */
    const double *zero;   /* (n_groups, rows) or NULL */
    double low, high;
    int n_levels; /* 0: steps */
    bool per_row; /* levels and thresholds are (.., rows) */
    const double *levels, *thresholds;
    bool exact;    /* float32 */
    uint8_t *mask; /* (columns, rows): 1 is a nonzero; or NULL */
} hc_ptq_grid;

/* N of every M: columns of one block are adjacent in the order; M is at most HC_PTQ_MOST. */
enum { HC_PTQ_MOST = 32 };
typedef struct {
    int n;
    const int32_t *block; /* (columns) */
    const double *weight; /* (columns), in the order */
} hc_ptq_choice;

/* A bound of the sums of a machine. A column belongs to a segment, after which the machine stores its sum elsewhere. Per
 * segment and row, P is the sum of the levels (code - zero) above 0, and N that of the magnitudes below 0:
 *
 *   p[i] P + n[i] N <= limit[i],  i = 0, 1
 *
 * A level beyond the bound becomes the nearest one within it. All numbers are integers below 2^53. */
typedef struct {
    int64_t n_segments;
    const int32_t *segment;      /* (columns) */
    double *positive, *negative; /* P and N (n_segments, rows), kept up to date */
    double p[2], n[2], limit[2];
    /* hc_ptq_columns: magnitudes to round lose this much, (n_segments, rows) or NULL. With `forgets`, later columns do
     * not correct for that, nor for a level that the bound moved. */
    const double *threshold;
    bool forgets;
} hc_ptq_budget;

/* Which scales may be stored. */
typedef enum { HC_PTQ_F32, HC_PTQ_F16, HC_PTQ_TABLE, HC_PTQ_TABLE_F32 } hc_ptq_scale_kind;
typedef struct {
    hc_ptq_scale_kind kind;
    int n;               /* of the table, ascending, > 0 */
    const double *table; /* scale = unit[row] * table[i], rounded to float32 for HC_PTQ_TABLE_F32 */
    const double *unit;  /* (rows) */
} hc_ptq_scales;

/* sum[i][j] += left[t][i] * right[t][j], t ascending; (columns, columns). If `left` is `right`, only for j >= i. */
hc_status hc_ptq_gram(const hc_run *run, int64_t tokens, int64_t columns, const double *left, const double *right,
                      double *sum, hc_error *error);

/* The upper R with matrix = R R^T, from the last column to the first, in place of the upper triangle, whose lower half
 * becomes 0: r_kk = sqrt(a_kk), r_ik = a_ik / r_kk, a_ij = a_ij - r_ik * r_jk. Then each column divided by r_kk, which
 * goes to `diagonal`. *failed: the column whose pivot was not above 0 and finite, or -1. */
hc_status hc_ptq_factor(const hc_run *run, int64_t columns, double *matrix, double *diagonal, int64_t *failed,
                        hc_error *error);

/* *largest: an estimate of the largest eigenvalue of a symmetric matrix without negative ones, by power iteration from
 * (1, 1 ... 1). Each step computes y_j = sum_i x_i h_ij, i ascending, from 0, the length sqrt(sum_j y_j y_j), j
 * ascending, and x = y / length. The estimate is the last length; 0 if a length is not above 0. */
hc_status hc_ptq_largest(const hc_run *run, int64_t columns, const double *matrix, int steps, double *largest,
                         hc_error *error);

/* error[group][row] = sum of weight[j] * (w_j - value_j)^2 over the columns of the group, ascending, from 0. */
hc_status hc_ptq_score(const hc_run *run, const hc_ptq_grid *grid, const double *w, const double *weight, double *sums,
                       hc_error *error);

/* Column order[j] is rounded from w_j + sum over i < j of (w_i - value_i) * factor[i][j], i ascending; from w_j alone
 * if `factor` is NULL. With `choice`, which may be NULL, the mask is chosen at the start of each block: the n
 * columns with the largest gain weight * (x^2 - (x - value)^2) are kept, the earlier in the order if gains are equal. x
 * is the value that would be rounded at that moment. Removed values have code 0. `first` (rows), which may be NULL, is
 * rounded for column order[0] instead of w_j; its error is still w_j - value_j. `budget` may be NULL; its sums are 0 at
 * the begin. */
hc_status hc_ptq_columns(const hc_run *run, const hc_ptq_grid *grid, const double *w, const double *factor,
                         const int32_t *order, const hc_ptq_choice *choice, const double *first,
                         const hc_ptq_budget *budget, int32_t *codes, hc_error *error);

enum { HC_PTQ_BLOCK = 96 }; /* columns after which the corrections of later columns are added by one product */

/* Makes `sweeps` sweeps over each column, ascending. Each of the first `refits` sweeps begins with each scale, groups
 * ascending. Everything else is fixed in each step. The state is e_j = w_j - value_j, and the slopes: the sum over i
 * ascending, from 0, of e_i h_ij. A change of e_i adds the change times h_ij, i ascending.
 *
 *   scale  With c = value / scale: a = sum_j c_j slope_j, b = sum_j c_j sum_{i in group} c_i h_ij, ascending, from 0;
 *          s' = s + a / b as it can be stored, used if the error falls. A row is skipped once a sweep
 *          changed none of its codes.
 *   code   t = value_j + slope_j / h_jj, rounded, used if it is nearer to t. Values that the mask removes stay 0.
 *
 * Ends when a sweep changes no code. changed[sweeps]: number of codes. `scales` NULL: scales do not change. `budget`
 * may be NULL; its sums are those of the codes. */
hc_status hc_ptq_descend(const hc_run *run, const hc_ptq_grid *grid, const double *w, const double *h,
                         const hc_ptq_scales *scales, const hc_ptq_budget *budget, int refits, int sweeps,
                         int32_t *codes, int64_t *changed, hc_error *error);

/* sums[row] = sum of e_j * ((before + before) + inside), j ascending, from 0. Blocks have HC_PTQ_BLOCK columns.
 * `before` is the sum of e_i h_ij over the i before the block of j, `inside` the sum over the i in the block. errors
 * (columns, rows), h symmetric. */
hc_status hc_ptq_losses(const hc_run *run, int64_t columns, int64_t rows, const double *errors, const double *h,
                        double *sums, hc_error *error);

/* Gains of levels for rows first .. first + count - 1. With c_j the scale of column j, or 0 if the mask removes the
 * value, slope[row][l] = sum of c_j sum_i (w_i - value_i) h_ij over the columns j of code l, and curvature[row][l][m] =
 * sum of c_i (sum of c_j h_ji over the columns j of code m) over the columns i of code l, all ascending, from 0. */
hc_status hc_ptq_levels(const hc_run *run, const hc_ptq_grid *grid, const double *w, const double *h,
                        const int32_t *codes, int64_t first, int64_t count, double *curvature, double *slope,
                        hc_error *error);

#endif
