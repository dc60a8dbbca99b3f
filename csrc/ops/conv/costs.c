/* Seconds of an algorithm: its counts of work times their costs. `heterocompute bench plan` measures the costs of
 * integers, and fit_costs.py writes costs.def. The costs of floats are the same on every machine, since the
 * choice determines the bits.
 */
#include "ops/conv/convolution.h"
#include "ops/kept_costs.h"

#include <string.h>

typedef struct {
    double call;     /* ns */
    double count[6]; /* ns of each: products, values, filters, kept, images, windows of hc_conv_work */
} hc_conv_cost;

typedef struct {
    uint32_t processor, needs; /* as in hc_costs_hold */
    hc_conv_cost of[HC_N_ALGORITHMS];
} hc_conv_costs;

/* The best instruction sets come first; among equal sets the costs of a measured processor come before those for all
 * processors. The last entry needs no instruction set. */
static const hc_conv_costs COSTS[] = {
#include "ops/conv/costs.def"
};

/* In units of a product of `direct`, AMD EPYC (Zen 4, AVX-512), one thread, 2026-11:
 *   depthwise   3, or 1.5 with several channels per group: one load per product, where the
 *               tiles of the others use one for 14
 *   winograd    8 per value and dimension: no choice of 51 between direct, F(2) and F(4), 16 to 512 channels of
 *               1 to 32 groups at 7 x 7 to 56 x 56, costs more than a tenth; with stride 2 none of 78 more than an eighth
 *   fft         80 per value, 24 per value of a filter: 5 x 5 and 7 x 7 of 64 to 256 channels at 14 x 14 to
 *               56 x 56, within 1.6 times
 *   planes      5 per copied value, 32 per value of a packed filter
 *   implicit    48 per gathered value: 3 x 3 of 64 channels takes 1.9 times the product itself, of 512 1.6 (Zen 5) */
static const hc_conv_cost FLOATS[HC_N_ALGORITHMS] = {
    [HC_ALGORITHM_FLOATS_direct] = {4000, {0.0095, 0, 0}},
    [HC_ALGORITHM_FLOATS_depthwise] = {4000, {0.01425, 0.01425, 0}},
    [HC_ALGORITHM_FLOATS_planes] = {4000, {0.0095, 0.05, 0.3}},
    [HC_ALGORITHM_FLOATS_implicit] = {4000, {0.0095, 0.456, 0}},
    [HC_ALGORITHM_FLOATS_im2col] = {4000, {0.0095, 0.532, 0}},
    [HC_ALGORITHM_FLOATS_winograd2] = {4000, {0.0095, 0.076, 0.076}},
    [HC_ALGORITHM_FLOATS_winograd4] = {4000, {0.0095, 0.076, 0.076}},
    [HC_ALGORITHM_FLOATS_winograd6] = {4000, {0.0095, 0.076, 0.076}},
    [HC_ALGORITHM_FLOATS_fft] = {4000, {0.0095, 0.76, 0.228}},
};

/* ns of a value that is transposed on its way in or out, as in NCHW by algorithms that read pixels. Of codes of one scale it
 * is less on Zen 5 (8 layers of `depthwise` and `direct`, 2026-12). */
static const double MOVED = 0.3, MOVED_ZEN5 = 0.18;
/* ns of a load that a product of `depthwise` of floats does not need. The costs of codes were measured without such loads. */
static const double SHARED = 0.01425;

/* A matmul of packed rows: ns of a call, and of a product relative to one of panels (28 to 960 channels, 28 to 1152
 * filters, 1 to 4 images, 4 formats, Zen 4, 2026-12). */
static const double ROWS_CALL = 2000, ROWS = 3;

/* Time of floats without AVX-512, relative to the time with it. By `planes` with codes a part of it is rounding. */
static double slowness_of_floats(uint32_t isa, bool codes) {
    return isa & HC_ISA_AVX512 ? 1 : isa & (HC_ISA_AVX2 | HC_ISA_NEON) ? (codes ? 1.5 : 2.1) : 150;
}

/* An algorithm that was not measured on this processor has the costs of all processors. */
static const hc_conv_cost *cost_of(uint32_t isa, hc_algorithm_number number) {
    const hc_conv_costs *found = COSTS, *last = COSTS + sizeof COSTS / sizeof *COSTS - 1;
    while (found < last && (!hc_costs_hold(found->processor, found->needs, isa) || found->of[number].call == 0))
        found++;
    return &found->of[number];
}

_Static_assert(sizeof(hc_conv_cost) == HC_CONV_COSTS * sizeof(double), "a cost is an array of numbers");

/* The costs of floats are never replaced. */
static const hc_conv_cost *cost_at_hand(uint32_t isa, hc_algorithm_number number) {
    const hc_conv_cost *own = (const void *)hc_kept_costs(true, isa);
    return number <= HC_ALGORITHM_FLOATS_fft ? &FLOATS[number] : own ? &own[number] : cost_of(isa, number);
}

void hc_algorithm_costs(uint32_t isa, hc_algorithm_number number, double costs[HC_CONV_COSTS]) {
    memcpy(costs, cost_at_hand(isa, number), sizeof(hc_conv_cost));
}

double hc_conv_seconds(uint32_t isa, hc_algorithm_number number, const hc_conv_work *work) {
    const bool is_float = number <= HC_ALGORITHM_FLOATS_fft || work->of_floats;
    const hc_conv_cost *ns = work->of_floats ? &FLOATS[HC_ALGORITHM_FLOATS_planes] : cost_at_hand(isa, number);
    if (ns->call == 0) /* not measured: used only if it is forced or the only algorithm */
        return 1e6;
    if (work->is_rows)
        return 1e-9 * (ROWS_CALL + ROWS * ns->count[0] * work->products);
    const bool folded = !is_float && number < HC_ALGORITHM_GROUPED_depthwise_rounded;
    const double moved = folded && hc_costs_hold(HC_PROCESSOR(HC_AMD, 26, 0), 0, isa) ? MOVED_ZEN5 : MOVED;
    return 1e-9 * (is_float ? slowness_of_floats(isa, work->of_floats) : 1) *
           (ns->call + ns->count[0] * work->products + ns->count[1] * work->values + ns->count[2] * work->filters +
            ns->count[3] * work->kept + ns->count[4] * work->images + ns->count[5] * work->windows +
            moved * work->moved - (is_float ? SHARED * work->shared : 0));
}
