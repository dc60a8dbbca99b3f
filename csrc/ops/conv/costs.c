/* Seconds of an algorithm: what it counts, by the times of costs.def. */
#include "ops/conv/convolution.h"

typedef struct {
    double call, product, value, filter, kept; /* ns: of a call, and of each count of hc_conv_work */
} hc_conv_cost;

typedef struct {
    uint32_t any;
    double floats; /* how many times as long the lines of floats take as in FLOATS */
    hc_conv_cost of[HC_N_ALGORITHMS];
} hc_conv_costs;

#define HC_FLOATS(symbol) [HC_ALGORITHM_FLOATS_##symbol]
#define HC_FOLDED(symbol) [HC_ALGORITHM_FOLDED_##symbol##_codes]
#define HC_GROUPED(symbol) [HC_ALGORITHM_GROUPED_##symbol]
#define HC_ROUNDED(symbol) [HC_ALGORITHM_ROUNDED_##symbol##_rounded]
#include "ops/conv/costs.def"

double hc_conv_seconds(uint32_t isa, hc_algorithm_number number, const hc_conv_work *work) {
    const hc_conv_costs *found = COSTS;
    while (found->any && !(found->any & isa))
        found++;
    const bool is_float = number <= HC_ALGORITHM_FLOATS_fft;
    const hc_conv_cost *ns = is_float ? &FLOATS[number] : &found->of[number];
    return 1e-9 * (is_float ? found->floats : 1) *
           (ns->call + ns->product * work->products + ns->value * work->values + ns->filter * work->filters +
            ns->kept * work->kept);
}
