/* Mappings of nested loops onto levels of storage, counted and searched: the rules of hardware/mapper/accesses.py.
 *
 * A choice is, of each dimension, one factor a slot: slots 0 .. n_levels-1 are the loops in time of the levels from the
 * outermost in, n_levels .. 2 n_levels-1 those in space; and of each level one of its orders, outer to inner. Counts are
 * float64: whole and below 2^53, so exact. Each dimension stands in one axis of a tensor, an axis has at most two.
 */
#ifndef HC_MODEL_MAPPER_H
#define HC_MODEL_MAPPER_H

#include "base/base.h"

enum { HC_MAP_DIMS = 16, HC_MAP_LEVELS = 12, HC_MAP_TENSORS = 8, HC_MAP_AXES = 8, HC_MAP_SLOTS = 2 * HC_MAP_LEVELS };

typedef enum { HC_MAP_ENERGY = 0, HC_MAP_DELAY, HC_MAP_EDP } hc_map_objective;

typedef struct {
    int count, dim[2];
    double coefficient[2];
} hc_map_axis;

typedef struct {
    int n_axes, axis_of[HC_MAP_DIMS]; /* -1: the dimension does not move the tensor */
    hc_map_axis axis[HC_MAP_AXES];
    double share, words; /* of values that are not zero; of the whole tensor */
    bool uniform;
} hc_map_tensor;

typedef struct {
    uint32_t keeps, compressed;
    double words, block, read, write, update, leak, instances, cluster, fanout, bandwidth_in, bandwidth_out, bandwidth;
    double own_words[HC_MAP_TENSORS], read_share[HC_MAP_TENSORS], update_share[HC_MAP_TENSORS];
    int64_t n_orders;
    const int64_t *orders; /* n_orders rows of n_dims, borrowed */
} hc_map_level;

typedef struct {
    int n_dims, n_levels, n_tensors, output;
    hc_map_objective objective;
    int64_t bound[HC_MAP_DIMS];
    uint32_t allowed[HC_MAP_SLOTS]; /* of each slot the dimensions that may have a factor there */
    double mac_energy, cycle_share;
    hc_map_tensor tensor[HC_MAP_TENSORS];
    hc_map_level level[HC_MAP_LEVELS];
} hc_map_model;

typedef struct {
    int64_t factor[HC_MAP_SLOTS][HC_MAP_DIMS];
    int64_t order[HC_MAP_LEVELS];
} hc_map_choice;

/* `first` is the objective, `second` breaks ties: cycles, or energy where the objective is delay. */
typedef struct {
    double energy, cycles, first, second;
} hc_map_cost;

/* A walk through the choices by small steps. Plain data: it may be copied and kept between calls. */
typedef struct {
    uint64_t random;
    int64_t taken, budget, valid;
    hc_map_choice now, best;
    hc_map_cost now_cost, best_cost;
} hc_map_walk;

/* What a part of an enumeration found; found is false where nothing fits. */
typedef struct {
    bool found;
    hc_map_choice choice;
    hc_map_cost cost;
    int64_t evaluated;
} hc_map_found;

/* Reads a model from two rows of numbers, in the order of `_pack` of hardware/mapper/model.py; `ints` stays borrowed. */
hc_status hc_map_read(const int64_t *ints, int64_t n_ints, const double *reals, int64_t n_reals, hc_map_model *model,
                      hc_error *error);

/* A choice from n_slots * n_dims factors and n_levels orders; HC_VALUE where it is none of this model's. */
hc_status hc_map_read_choice(const hc_map_model *model, const int64_t *numbers, int64_t count, hc_map_choice *choice,
                             hc_error *error);

/* false where a level overflows or spreads over more instances than there are. */
bool hc_map_cost_of(const hc_map_model *model, const hc_map_choice *choice, hc_map_cost *cost);

/* Whether a is strictly the better one. */
bool hc_map_better(const hc_map_cost *a, const hc_map_cost *b);

/* Every combination of factor rows number start .. stop-1 with every combination of orders. Of dimension d, table[d]
 * holds n_rows[d] rows of one factor a slot; the last dimension changes fastest. */
void hc_map_enumerate(const hc_map_model *model, const int64_t *const *table, const int64_t *n_rows, int64_t start,
                      int64_t stop, hc_map_found *found);

/* HC_VALUE where the choice to begin with does not fit. */
hc_status hc_map_walk_begin(const hc_map_model *model, const hc_map_choice *choice, uint64_t seed, int64_t budget,
                            hc_map_walk *walk, hc_error *error);
void hc_map_walk_on(const hc_map_model *model, hc_map_walk *walk, int64_t steps);

#endif
