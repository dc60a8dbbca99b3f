/* The costs of all paths and algorithms by name; hc.h. */
#include "hc.h"
#include "ops/conv/convolution.h"
#include "ops/kept_costs.h"
#include "ops/product/measure.h"

static const char *const PATHS[] = {
#define HC_PATH(order, symbol, ...) #order "_" #symbol,
#include "ops/product/paths.def"
#undef HC_PATH
};

static const char *const ALGORITHMS[] = {
#define HC_ALGORITHM(order, symbol, ...) #order "_" #symbol,
#include "ops/conv/algorithms.def"
#undef HC_ALGORITHM
};

_Static_assert((int)HC_PATH_COSTS <= (int)HC_MAX_COSTS && (int)HC_CONV_COSTS <= (int)HC_MAX_COSTS,
               "room for all costs");

int hc_costs_of(bool conv, int number, uint32_t isa, const char **id, double costs[HC_MAX_COSTS]) {
    if (number < 0 || number >= (conv ? (int)HC_N_ALGORITHMS : (int)HC_N_PATHS))
        return 0;
    *id = conv ? ALGORITHMS[number] : PATHS[number];
    if (conv)
        hc_algorithm_costs(isa, (hc_algorithm_number)number, costs);
    else
        hc_path_costs(isa, (hc_path_number)number, costs);
    return conv ? HC_CONV_COSTS : HC_PATH_COSTS;
}

hc_status hc_keep_costs(bool conv, uint32_t isa, int64_t n, const double *costs, hc_error *error) {
    const int64_t all = conv ? HC_N_ALGORITHMS * HC_CONV_COSTS : HC_N_PATHS * HC_PATH_COSTS;
    if (n != 0 && n != all)
        return hc_fail(error, HC_VALUE, "costs: there are %lld numbers, expected 0 or %lld", (long long)n,
                       (long long)all);
    if (!hc_set_kept_costs(conv, isa, n, costs))
        return hc_fail(error, HC_MEMORY, "costs: not enough memory");
    return HC_OK;
}
