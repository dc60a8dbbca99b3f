/* One plan per matmul. hc_product describes the operands, both as rows over k, and the result. A path is one algorithm
 * for the matmul. paths.def has a section for each order of summation; all paths of a section give the same bits, and
 * the order follows from shapes and formats alone. The plan is the path of the section with the smallest estimate among
 * the paths that do not refuse; hc_plan_product is the only place that chooses.
 */
#ifndef HC_PLAN_H
#define HC_PLAN_H

#include "ops/product/measure.h"

typedef struct {
    hc_order order;
    const char *id;   /* its number's name: ORDER_symbol */
    const char *name; /* shown by hc_explain; a run can force it */
    const char *what; /* it does, a phrase */
    /* NULL, or why the path cannot compute this product. Depends on shapes, formats and instruction sets. */
    const char *(*refuses)(const hc_product *product);
    /* The work for a product that the path does not refuse. */
    hc_work (*work)(const hc_product *product);
    hc_status (*run)(const hc_product *product, hc_error *error);
    /* NULL if bits never depend on values. Otherwise a function that returns why the bits would differ for these
     * values, or NULL. It reads all values, so it is called last. */
    const char *(*differs)(const hc_product *product);
} hc_path;

typedef struct {
    const hc_path *path; /* the chosen one */
    int n;
    struct {
        const hc_path *path;
        const char *reason; /* why not, or NULL */
        double seconds;     /* estimate for one thread; 0 if the path refuses */
        hc_work work;
    } candidate[HC_N_PATHS]; /* no section has more */
} hc_plan;

/* Fails with HC_VALUE if exact sums pass 64 bits, or if the run forces a path that refuses. With `all`, every candidate
 * is examined, even if the choice does not need it. */
hc_status hc_plan_product(const hc_product *product, bool all, hc_plan *plan, hc_error *error);

/* Plans and runs. Does nothing if a side has no rows; writes zeros if there are no columns. */
hc_status hc_multiply(const hc_product *product, hc_error *error);

#endif
