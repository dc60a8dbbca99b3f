/* Rounding under the inputs of a layer: sums of inputs, their factor, and what is done to columns of weights with it.
 *
 * Weights lie transposed, (columns, rows): a column is one input of all rows, and rows are lanes. Every sum has an order
 * that is stated here and in heterocompute/reference/ptq.py, so that codes are the same on every machine and for any
 * number of threads: those over inputs or columns, with an entry of H or of its factor, are chains of one fused
 * multiply-add each, in all others the product is rounded, then the sum. The equations: docs/ptq.md.
 */
#ifndef HC_PTQ_H
#define HC_PTQ_H

#include "base/base.h"

/* What a column may be rounded to. value = scale * (code - zero), low <= code <= high, or scale * level[code]; or the
 * nearest float32, whose bits are the code. 0 where `mask` keeps no value, whose code counts for nothing. */
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
    uint8_t *mask; /* (columns, rows): 1 is kept; or NULL */
} hc_ptq_grid;

/* N of every M: columns of one block follow each other in the order, at most HC_PTQ_MOST. */
enum { HC_PTQ_MOST = 32 };
typedef struct {
    int n;
    const int32_t *block; /* (columns) */
    const double *weight; /* (columns), in the order */
} hc_ptq_choice;

/* Which scales may be stored. */
typedef enum { HC_PTQ_F32, HC_PTQ_F16, HC_PTQ_TABLE, HC_PTQ_TABLE_F32 } hc_ptq_scale_kind;
typedef struct {
    hc_ptq_scale_kind kind;
    int n;               /* of the table, ascending, > 0 */
    const double *table; /* scale = unit[row] * table[i], rounded to float32 for HC_PTQ_TABLE_F32 */
    const double *unit;  /* (rows) */
} hc_ptq_scales;

/* sum[i][j] += left[t][i] * right[t][j], t ascending; (columns, columns). Where `left` is `right` only j >= i. */
hc_status hc_ptq_gram(const hc_run *run, int64_t tokens, int64_t columns, const double *left, const double *right,
                      double *sum, hc_error *error);

/* The upper R with matrix = R R^T, from the last column to the first, in place of the upper triangle, whose lower half
 * becomes 0: r_kk = sqrt(a_kk), r_ik = a_ik / r_kk, a_ij = a_ij - r_ik * r_jk. Then each column divided by r_kk, which
 * goes to `diagonal`. *failed: the column whose pivot was not above 0 and finite, or -1. */
hc_status hc_ptq_factor(const hc_run *run, int64_t columns, double *matrix, double *diagonal, int64_t *failed,
                        hc_error *error);

/* error[group][row] = sum of weight[j] * (w_j - value_j)^2 over the columns of the group, ascending, from 0. */
hc_status hc_ptq_score(const hc_run *run, const hc_ptq_grid *grid, const double *w, const double *weight, double *sums,
                       hc_error *error);

/* Column order[j] is rounded from w_j + sum over i < j of (w_i - value_i) * factor[i][j], i ascending; from w_j
 * alone where `factor` is NULL. With `choice`, which may be NULL, the mask is chosen: where a block begins, those n of its
 * columns are kept whose rounding gains most, weight * (x^2 - (x - value)^2), x being what they would be rounded from
 * then; of equal ones the earlier in the order. Code 0 where none is kept. */
hc_status hc_ptq_columns(const hc_run *run, const hc_ptq_grid *grid, const double *w, const double *factor,
                         const int32_t *order, const hc_ptq_choice *choice, int32_t *codes, hc_error *error);

enum { HC_PTQ_BLOCK = 96 }; /* columns between which what is owed is one product */

/* `sweeps` times, the first `refits` of them after the scales: each scale, groups ascending, then each column, ascending,
 * all else fixed. They keep e_j = w_j - value_j, and the slopes, sum over i ascending, from 0, of e_i h_ij, to which whatever
 * changes an e_i adds its change times h_ij, i ascending.
 *   scale  With c = value / scale: a = sum_j c_j slope_j, b = sum_j c_j sum_{i in group} c_i h_ij, ascending, from 0;
 *          s' = s + a / b as it can be stored, taken where the error falls. A row of which a sweep changed no code rests.
 *   code   t = value_j + slope_j / h_jj, rounded, taken where it is nearer to t. What the mask does not keep stays 0.
 * Ends where a sweep changes no code. changed[sweeps]: codes. `scales` may be NULL: none moves. */
hc_status hc_ptq_descend(const hc_run *run, const hc_ptq_grid *grid, const double *w, const double *h,
                         const hc_ptq_scales *scales, int refits, int sweeps, int32_t *codes, int64_t *changed,
                         hc_error *error);

/* sums[row] = sum of e_j * ((before + before) + inside), j ascending, from 0, where `before` is the sum of e_i h_ij of the i
 * before the block of j, of HC_PTQ_BLOCK columns, and `inside` that of those in it; errors (columns, rows), h symmetric. */
hc_status hc_ptq_losses(const hc_run *run, int64_t columns, int64_t rows, const double *errors, const double *h,
                        double *sums, hc_error *error);

/* What levels gain, of rows first .. first + count - 1: with c_j the scale of column j, 0 where the mask keeps none,
 * slope[row][l] = sum of c_j sum_i (w_i - value_i) h_ij over the columns j of code l, and curvature[row][l][m] = sum of
 * c_i (sum of c_j h_ji over the columns j of code m) over the columns i of code l, all ascending, from 0. */
hc_status hc_ptq_levels(const hc_run *run, const hc_ptq_grid *grid, const double *w, const double *h,
                        const int32_t *codes, int64_t first, int64_t count, double *curvature, double *slope,
                        hc_error *error);

#endif
