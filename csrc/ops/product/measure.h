/* What a product costs by each path. */
#ifndef HC_MEASURE_H
#define HC_MEASURE_H

#include "ops/product/product.h"

/* The paths by number, in the order of paths.def. */
typedef enum {
#define HC_PATH(order, symbol, ...) HC_PATH_##order##_##symbol,
#include "ops/product/paths.def"
#undef HC_PATH
    HC_N_PATHS
} hc_path_number;

/* Estimate in one thread, by the measures of the best class of machines that the run's instruction sets allow. */
double hc_estimate(const hc_run *run, hc_path_number path, const hc_work *work);

/* What decoding weights to integers takes, of that of integers of 8 bits without a pattern. */
double hc_integers_share(const hc_product *product);

/* What decoding weights with scales of groups takes, of that of codes of 4 and 8 bits: more for codes of other widths, for
 * minima and for patterns. */
double hc_decoding_share(const hc_product *product);

/* Seconds of the two paths of HC_ORDER_CHAIN for weights in a pattern, `gemm` first, instead of estimates: measured on a part of
 * the operands and remembered; false where that is not worth it or there is no memory. */
typedef hc_status hc_run_path(const hc_product *product, hc_error *error);
bool hc_measure_nm(const hc_product *product, hc_run_path *gemm, hc_run_path *nonzeros, double seconds[2]);

#endif
