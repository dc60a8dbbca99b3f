/* One product, one plan. hc_product says what is multiplied: both sides as rows over k, and where the answer goes. A path is
 * one way to do it. paths.def has a section for each order of summation; all paths of a section give the same bits, and
 * the order follows from shapes and formats alone. The plan is the path of the section with the least estimate among those
 * that do not refuse; hc_plan is the only place that chooses.
 */
#ifndef HC_PLAN_H
#define HC_PLAN_H

#include "ops/product/operand.h"
#include "ops/product/source.h"

/* y[i, j] = sum over k of x_i[k] w_j[k], the rows of `out` being those of x and its columns the rows of w. */
typedef struct {
    const hc_run *run;
    hc_order order;
    const hc_source *x, *w;
    const hc_packed_context *x_packed, *w_packed; /* the side as packed rows, or NULL */
    const float *vectors;                         /* HC_ORDER_GEMV: the rows of x, ld_vectors apart; else NULL */
    int64_t ld_vectors;
    hc_rows out;
} hc_product;

/* How much there is to do; a path's measures (measures.c) make an estimate of it. */
typedef struct {
    double codes;    /* read as they are stored */
    double decoded;  /* codes that are decoded, and packed where the path packs */
    double products; /* multiply-adds, those of padded tiles included */
    double values;   /* of x that are brought into the path's order */
} hc_work;

typedef struct {
    hc_order order;
    const char *id;   /* its number's name: ORDER_symbol */
    const char *name; /* what hc_explain shows and a run may force */
    const char *what; /* it does, a phrase */
    /* NULL, or why the path does not do this product: by shapes, formats and instruction sets. */
    const char *(*refuses)(const hc_product *product);
    /* What it would do with a product that it does not refuse. */
    hc_work (*work)(const hc_product *product);
    hc_status (*run)(const hc_product *product, hc_error *error);
    /* NULL, or why its bits would differ with these values, or NULL; looks at all of them, so it is asked last. */
    const char *(*differs)(const hc_product *product);
} hc_path;

enum { HC_MAX_PATHS = 8 }; /* of a section */

typedef struct {
    const hc_path *path; /* the chosen one */
    int n;
    struct {
        const hc_path *path;
        const char *reason; /* why not, or NULL */
        double seconds;     /* of one thread, an estimate; 0 where it refuses */
        hc_work work;
    } candidate[HC_MAX_PATHS];
} hc_plan;

/* Integers where both sides have them, folded before grouped; else floats, those of few vectors in an order of their own. */
hc_order hc_order_of(const hc_source *x, const hc_source *w);

/* HC_VALUE where exact sums pass 64 bits, or where the run forces a path that refuses. With `all`, candidates that need not
 * be looked at are looked at too. */
hc_status hc_plan_product(const hc_product *product, bool all, hc_plan *plan, hc_error *error);

/* Plans and runs. Nothing to do where either side has no rows; zeros where there are no columns. */
hc_status hc_multiply(const hc_product *product, hc_error *error);

/* For paths: dimensions of rows that lie evenly one after another become one, so that most answers have one; the same run
 * with no more threads than are worth waking. */
hc_rows hc_merged_rows(const hc_rows *rows);
hc_run hc_run_for(const hc_product *product);

/* The paths by number, in the order of paths.def. */
typedef enum {
#define HC_PATH(order, symbol, ...) HC_PATH_##order##_##symbol,
#include "ops/product/paths.def"
#undef HC_PATH
    HC_N_PATHS
} hc_path_number;

/* Estimate in one thread, by the measures of the best class of machines that the run's instruction sets allow. */
double hc_estimate(const hc_run *run, hc_path_number path, const hc_work *work);

/* Instead of estimates: seconds of the two paths of HC_ORDER_CHAIN for weights in a pattern, measured on a part of the
 * operands and remembered; false where that is not worth it or there is no memory. */
bool hc_measure_nm(const hc_product *product, double *gemm, double *nonzeros);

#endif
