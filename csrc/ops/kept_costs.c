/* The costs that a machine measured. */
#include "ops/kept_costs.h"

#include "base/base.h"
#include "base/cpu.h"

#include <stdatomic.h>
#include <string.h>

/* A later set replaces an earlier one, which is never freed: another thread may read it. */
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

bool hc_set_kept_costs(bool conv, uint32_t isa, int64_t n, const double *costs) {
    hc_own_costs *own = n ? hc_alloc_aligned((int64_t)(sizeof *own + (size_t)n * sizeof *costs)) : NULL;
    if (n && !own)
        return false;
    if (own) {
        own->isa = isa;
        memcpy(own->costs, costs, (size_t)n * sizeof *costs);
    }
    atomic_store_explicit(&kept[conv], own, memory_order_release);
    return true;
}
