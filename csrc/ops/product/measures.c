/* What the estimates of the plan are made of: nanoseconds that were measured, for each path and class of machines. They need
 * not be right, only tell paths apart that give the same bits. `heterocompute bench plan` measures them, holds the plan
 * against the clock and prints the lines of a class.
 */
#include "ops/product/plan.h"

typedef struct {
    double call, code, decoded, product, value; /* ns: of a call, and of each count of hc_work */
} hc_cost;

typedef struct {
    uint32_t any;
    hc_cost of[HC_N_PATHS];
} hc_measures;

/* Best first. */
static const hc_measures MEASURES[] = {
#include "ops/product/measures.def"
};

double hc_estimate(const hc_run *run, hc_path_number path, const hc_work *work) {
    const hc_measures *found = MEASURES;
    while (found->any && !(found->any & run->isa))
        found++;
    const hc_cost *ns = &found->of[path];
    if (ns->call == 0) /* not measured: taken where it is forced, or alone */
        return 1e6;
    return 1e-9 * (ns->call + ns->code * work->codes + ns->decoded * work->decoded + ns->product * work->products +
                   ns->value * work->values);
}
