/* The costs of all paths and algorithms by name, and those that a machine measured; hc.h. */
#include "ops/costs.h"

#include "base/cpu.h"
#include "hc.h"
#include "ops/conv/convolution.h"
#include "ops/product/measure.h"

#include <stdatomic.h>
#include <string.h>

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

/* Costs that were measured on this machine. A later set replaces an earlier one, which is never freed: another thread may
 * read it. */
typedef struct {
    uint32_t isa;
    double costs[];
} hc_own_costs;
static hc_own_costs *_Atomic kept[2]; /* of paths, of algorithms */

bool hc_costs_hold(uint32_t processor, uint32_t needs, uint32_t isa) {
    return (!processor || processor == hc_cpu_processor()) && (needs & isa) == needs;
}

const double *hc_kept_costs(bool conv, uint32_t isa) {
    const hc_own_costs *own = atomic_load_explicit(&kept[conv], memory_order_acquire);
    return own && own->isa == isa ? own->costs : NULL;
}

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
    hc_own_costs *own = n ? hc_alloc_aligned((int64_t)(sizeof *own + (size_t)n * sizeof *costs)) : NULL;
    if (n && !own)
        return hc_fail(error, HC_MEMORY, "costs: not enough memory");
    if (own) {
        own->isa = isa;
        memcpy(own->costs, costs, (size_t)n * sizeof *costs);
    }
    atomic_store_explicit(&kept[conv], own, memory_order_release);
    return HC_OK;
}
