/* Estimates of time: the sum of counts of work times their costs. They only rank paths that give the same bits.
 * `heterocompute bench plan` measures the costs and compares the plan with measured times. fit_costs.py writes
 * costs.def.
 */
#include "ops/product/measure.h"

#include "ops/kept_costs.h"
#include "ops/product/pack.h"

#include <string.h>

enum { SPREAD_ROW = 512 }; /* columns of a pattern that take as long as the start of its row */

typedef struct {
    double call;    /* ns */
    hc_work counts; /* ns of each */
} hc_cost;

typedef struct {
    uint32_t processor; /* hc_cpu_processor() of the measurement; 0 for any processor */
    uint32_t needs;     /* instruction sets, all of them */
    hc_cost of[HC_N_PATHS];
} hc_costs;

/* The best instruction sets come first; among equal sets the costs of a measured processor come before those for all
 * processors. The last entry needs no instruction set. */
static const hc_costs COSTS[] = {
#include "ops/product/costs.def"
};

static const hc_costs *costs_of(uint32_t isa) {
    const hc_costs *found = COSTS;
    while (!hc_costs_hold(found->processor, found->needs, isa))
        found++;
    return found;
}

_Static_assert(sizeof(hc_cost) == HC_PATH_COSTS * sizeof(double), "a cost is an array of numbers");

static const hc_cost *cost_of(uint32_t isa, hc_path_number path) {
    const hc_cost *own = (const void *)hc_kept_costs(false, isa);
    return own ? &own[path] : &costs_of(isa)->of[path];
}

void hc_path_costs(uint32_t isa, hc_path_number path, double costs[HC_PATH_COSTS]) {
    memcpy(costs, cost_of(isa, path), sizeof(hc_cost));
}

double hc_estimate(const hc_run *run, hc_path_number path, const hc_work *work) {
    const hc_cost *ns = cost_of(run->isa, path);
    if (ns->call == 0) /* not measured: used only if it is forced or the only path */
        return 1e6;
    const hc_work *cost = &ns->counts;
    return 1e-9 *
           (ns->call + cost->codes * work->codes + cost->decoded * work->decoded + cost->unpacked * work->unpacked +
            cost->limbs * work->limbs + cost->spread * work->spread + cost->products * work->products +
            cost->wide * work->wide + cost->groups * work->groups + cost->values * work->values);
}

bool hc_unpacked(const hc_product *p) {
    const hc_format *format = p->w_packed ? p->w_packed->format : NULL;
    return format && ((format->bits != 4 && format->bits < 8) || p->w->form[HC_INT_GROUPED].has_minima);
}

double hc_groups(const hc_product *p) {
    return p->w->group ? (double)p->w->rows * (double)hc_ceil_div(p->w->columns, p->w->group) : 0;
}

double hc_spread(const hc_product *p) {
    return p->w->sparse ? (double)p->w->rows * (double)(p->w->columns + SPREAD_ROW) : 0;
}

hc_work hc_decoding(const hc_product *p) {
    const hc_packed_context *sparse = p->w->sparse;
    const double rows = (double)p->w->rows, columns = (double)p->w->columns;
    const double codes = sparse ? rows * (double)sparse->geometry->columns : rows * columns;
    const hc_int_mode mode = p->order == HC_ORDER_FOLDED ? HC_INT_FOLDED : HC_INT_GROUPED;
    const int limbs = p->order == HC_ORDER_CHAIN ? 1 : hc_signed_limbs(&p->w->form[mode]);
    const hc_stored_form form = p->w_packed ? hc_form_of(p->w_packed->format) : (hc_stored_form){0};
    const bool looks_up = p->order == HC_ORDER_GROUPED && (hc_form_has_table(&form) || form.e2_bits);
    return (hc_work){.decoded = codes,
                     .unpacked = hc_unpacked(p) || looks_up ? codes : 0,
                     .limbs = codes * (limbs - 1),
                     .spread = hc_spread(p)};
}
