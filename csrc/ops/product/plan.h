/* One product, one plan. hc_product says what is multiplied: both sides as rows over k, and where the answer goes. A path is
 * one way to do it. paths.def has a section for each order of summation; all paths of a section give the same bits, and
 * the order follows from shapes and formats alone. The plan is the path of the section with the least estimate among those
 * that do not refuse; hc_plan_product is the only place that chooses.
 */
#ifndef HC_PLAN_H
#define HC_PLAN_H

#include "ops/product/measure.h"

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

typedef struct {
    const hc_path *path; /* the chosen one */
    int n;
    struct {
        const hc_path *path;
        const char *reason; /* why not, or NULL */
        double seconds;     /* of one thread, an estimate; 0 where it refuses */
        hc_work work;
    } candidate[HC_N_PATHS]; /* no section has more */
} hc_plan;

/* HC_VALUE where exact sums pass 64 bits, or where the run forces a path that refuses. With `all`, candidates that need not
 * be looked at are looked at too. */
hc_status hc_plan_product(const hc_product *product, bool all, hc_plan *plan, hc_error *error);

/* Plans and runs. Nothing to do where either side has no rows; zeros where there are no columns. */
hc_status hc_multiply(const hc_product *product, hc_error *error);

#endif
