/* Two searches of the choices: all of them, and a random walk. The walk is threshold accepting (Dueck and Scheuer, J.
 * Comput. Phys. 90, 1990): it accepts slightly worse choices, and fewer of them over time. A step moves a prime factor
 * of one dimension to another slot, or changes the order of one level. It needs no exponential, so a seed gives the
 * same walk on every machine.
 */
#include "model/cost.h"

#include <string.h>

bool hc_map_better(const hc_map_cost *a, const hc_map_cost *b) {
    return a->first < b->first || (a->first == b->first && a->second < b->second);
}

void hc_map_enumerate(const hc_map_model *model, const int64_t *const *table, const int64_t *n_rows, int64_t start,
                      int64_t stop, hc_map_found *found) {
    const int n_dims = model->n_dims, n_slots = 2 * model->n_levels;
    hc_map_choice choice;
    hc_map_layout layout;
    found->found = false, found->evaluated = 0;
    for (int64_t number = start; number < stop; number++) {
        int64_t rest = number;
        memset(choice.order, 0, sizeof choice.order);
        for (int d = n_dims - 1; d >= 0; d--) {
            const int64_t *row = table[d] + rest % n_rows[d] * n_slots;
            rest /= n_rows[d];
            for (int slot = 0; slot < n_slots; slot++)
                choice.factor[slot][d] = row[slot];
        }
        if (!hc_map_lay_out(model, &choice, &layout))
            continue;
        int level;
        do {
            hc_map_cost cost;
            hc_map_finish(model, &choice, &layout, &cost);
            found->evaluated++;
            if (!found->found || hc_map_better(&cost, &found->cost)) {
                found->found = true;
                found->cost = cost;
                found->choice = choice;
            }
            for (level = model->n_levels - 1; level >= 0; level--) {
                if (++choice.order[level] < model->level[level].n_orders)
                    break;
                choice.order[level] = 0;
            }
        } while (level >= 0);
    }
}

/* SplitMix64 (Steele, Lea and Flood, OOPSLA 2014). */
static uint64_t next(uint64_t *state) {
    uint64_t z = (*state += UINT64_C(0x9e3779b97f4a7c15));
    z = (z ^ (z >> 30)) * UINT64_C(0xbf58476d1ce4e5b9);
    z = (z ^ (z >> 27)) * UINT64_C(0x94d049bb133111eb);
    return z ^ (z >> 31);
}

static int64_t below(uint64_t *state, int64_t count) {
    return (int64_t)(((next(state) >> 32) * (uint64_t)count) >> 32);
}

/* A random prime factor of a number that is at least 2, or sometimes all of it. */
static int64_t part_of(int64_t number, uint64_t *random) {
    if (below(random, 4) == 0)
        return number;
    int64_t primes[16];
    int count = 0;
    int64_t rest = number;
    for (int64_t p = 2; p * p <= rest; p++) {
        if (rest % p)
            continue;
        primes[count++] = p;
        while (rest % p == 0)
            rest /= p;
    }
    if (rest > 1)
        primes[count++] = rest;
    return primes[below(random, count)];
}

static void move_factor(const hc_map_model *model, hc_map_choice *choice, uint64_t *random) {
    const int n_slots = 2 * model->n_levels;
    int dims[HC_MAP_DIMS], from[HC_MAP_SLOTS], to[HC_MAP_SLOTS], n_dims = 0, n_from = 0, n_to = 0;
    for (int d = 0; d < model->n_dims; d++)
        if (model->bound[d] > 1)
            dims[n_dims++] = d;
    if (!n_dims)
        return;
    const int d = dims[below(random, n_dims)];
    for (int slot = 0; slot < n_slots; slot++) {
        if (choice->factor[slot][d] > 1)
            from[n_from++] = slot;
        /* A spatial slot whose children have one instance has no loop. */
        if (model->allowed[slot] >> d & 1 &&
            (slot < model->n_levels || model->level[slot - model->n_levels].fanout > 1))
            to[n_to++] = slot;
    }
    if (!n_to)
        return;
    const int source = from[below(random, n_from)], target = to[below(random, n_to)];
    if (source == target)
        return;
    const int64_t part = part_of(choice->factor[source][d], random);
    choice->factor[source][d] /= part;
    choice->factor[target][d] *= part;
}

static void move_order(const hc_map_model *model, hc_map_choice *choice, uint64_t *random) {
    int levels[HC_MAP_LEVELS], count = 0;
    for (int i = 0; i < model->n_levels; i++)
        if (model->level[i].n_orders > 1)
            levels[count++] = i;
    if (!count)
        return;
    const int i = levels[below(random, count)];
    choice->order[i] = below(random, model->level[i].n_orders);
}

hc_status hc_map_walk_begin(const hc_map_model *model, const hc_map_choice *choice, uint64_t seed, int64_t budget,
                            hc_map_walk *walk, hc_error *error) {
    memset(walk, 0, sizeof *walk);
    walk->random = seed;
    walk->budget = budget;
    walk->now = walk->best = *choice;
    if (!hc_map_cost_of(model, choice, &walk->now_cost))
        return hc_fail(error, HC_VALUE, "search: the initial mapping does not fit the memories");
    walk->best_cost = walk->now_cost;
    walk->taken = walk->valid = 1;
    return HC_OK;
}

void hc_map_walk_on(const hc_map_model *model, hc_map_walk *walk, int64_t steps) {
    const int64_t stop = hc_min(walk->budget, walk->taken + steps);
    for (; walk->taken < stop; walk->taken++) {
        /* Half-way and near the end the walk returns to its best choice. */
        if (walk->taken == walk->budget / 2 || walk->taken == walk->budget - walk->budget / 8) {
            walk->now = walk->best;
            walk->now_cost = walk->best_cost;
        }
        hc_map_choice choice = walk->now;
        hc_map_cost cost;
        const int64_t kind = below(&walk->random, 8);
        if (kind < 2)
            move_order(model, &choice, &walk->random);
        for (int64_t moves = kind == 0 ? 0 : kind < 6 ? 1 : 2; moves; moves--)
            move_factor(model, &choice, &walk->random);
        if (!hc_map_cost_of(model, &choice, &cost))
            continue;
        walk->valid++;
        const double left = 1 - (double)walk->taken / (double)walk->budget;
        if (cost.first <= walk->now_cost.first * (1 + 0.5 * left * left)) {
            walk->now = choice;
            walk->now_cost = cost;
        }
        if (hc_map_better(&cost, &walk->best_cost)) {
            walk->best = choice;
            walk->best_cost = cost;
        }
    }
}
