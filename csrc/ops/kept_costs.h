/* Which costs of paths and algorithms hold: those of costs.def for a processor, or those that a machine measured. */
#ifndef HC_KEPT_COSTS_H
#define HC_KEPT_COSTS_H

#include <stdbool.h>
#include <stdint.h>

/* True if costs hold for a run with the instruction sets `isa`: they were measured on `processor`, 0 for any, with
 * `needs`. */
bool hc_costs_hold(uint32_t processor, uint32_t needs, uint32_t isa);

/* The costs of all paths, or of all algorithms of convolutions, one after the other, that were measured on this machine
 * with exactly the instruction sets `isa`. NULL if there are none. */
const double *hc_kept_costs(bool conv, uint32_t isa);

/* Uses n such costs from now on; 0: those of costs.def. Returns false if there is no memory. */
bool hc_set_kept_costs(bool conv, uint32_t isa, int64_t n, const double *costs);

#endif
