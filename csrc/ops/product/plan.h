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

typedef struct {
    hc_order order;
    const char *name; /* what hc_explain shows and a run may force */
    const char *what; /* it does, a phrase */
    /* NULL, or why the path does not do this product: by shapes, formats and instruction sets. */
    const char *(*refuses)(const hc_product *product);
    /* Estimate of its time in one thread, of a product that it does not refuse. */
    double (*seconds)(const hc_product *product);
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
        double seconds;     /* 0 where it refuses */
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

/* Measures of a class of machines, for the estimates: cycles, unless said otherwise. */
typedef struct {
    const char *name, *measured; /* the class; machine, command and date */
    uint32_t needs;
    double hz, call;                   /* call: seconds */
    double gemv_code, gemv_product;    /* a stored code; that times a vector */
    double decoded_code, tile_product; /* a code decoded to float32; that times a vector, in tiles */
    double densified_code, densified_product, densified_nonzero;
    double batch_row, batch_nonzero, batch_group_nonzero;
    double nonzeros_column, nonzeros_product, nonzeros_code, nonzeros_group_product;
    double pairs_column, pairs_product, pairs_nonzero;
    double gemv_24_code, gemv_24_product;
    double int_code, int_product, int_24_code, int_24_product, int_nm_code, int_nm_product;
    double packed_value, packed_byte;      /* of w, decoded and packed: as float32, as int8 */
    double gemm_f32, gemm_s8, gemm_nm_f32; /* a multiply-add */
} hc_measures;
const hc_measures *hc_measures_of(const hc_run *run);

/* Seconds of so many cycles, and a call. */
double hc_seconds(const hc_measures *measures, double cycles);

/* Seconds of the two ways that only differ in how they walk over weights in a pattern, measured on a part of the operands and
 * remembered; false where that is not worth it or there is no memory. */
bool hc_measure_nm(const hc_product *product, double *gemm, double *nonzeros);

#endif
