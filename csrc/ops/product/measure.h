/* Costs of a matmul by each path: counts of work, and nanoseconds for each of them. */
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

/* Estimate in one thread, by the costs of this processor, or else of the best class of instruction sets that the run
 * allows. */
double hc_estimate(const hc_run *run, hc_path_number path, const hc_work *work);

/* Nanoseconds of a call and of each count of hc_work; 0 for a call: not measured. */
enum { HC_PATH_COSTS = 10 };
void hc_path_costs(uint32_t isa, hc_path_number path, double costs[HC_PATH_COSTS]);

/* Parts of hc_work that paths share. Whether the codes of w have minima or a width other than 4 and 8 bits; */
bool hc_unpacked(const hc_product *product);
/* the values of rows of x and the results, each as many values as it takes time: fits to matmuls of 8 to 4096 outputs
 * (Zen 4, 2026-11); */
static inline double hc_values_and_results(const hc_product *product, double rows, double result) {
    return rows * ((double)product->w->columns + result * (double)product->w->rows);
}
/* the groups of a row of w with the empty lanes that kernels of 16 lanes multiply; scalar ones skip them; */
static inline int64_t hc_groups_in_lanes(const hc_product *product, int64_t groups) {
    return product->run->isa & (HC_ISA_AVX2 | HC_ISA_NEON) ? hc_round_up(groups, 16) : groups;
}
/* the groups of w; */
double hc_groups(const hc_product *product);
/* the number of columns into which the nonzeros of a pattern are expanded, 0 without a pattern; */
double hc_spread(const hc_product *product);
/* and the work of decoding all of w to float32 or to the integers of the product's order: decoded, unpacked, limbs and
 * spread. */
hc_work hc_decoding(const hc_product *product);

#endif
