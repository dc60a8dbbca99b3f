/* Mappings of nested loops onto levels of storage, counted and searched: the rules of hardware/mapper/accesses.py.
 *
 * A choice has one factor per dimension and slot, and one order of loops per level, outer to inner. Slots 0 ..
 * n_levels-1 are the temporal loops of the levels, outermost first, and n_levels .. 2 n_levels-1 the spatial loops.
 * Counts are float64: whole and below 2^53, so exact. Each dimension is in one axis of a tensor, and an axis has at
 * most two dimensions.
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
    double share, words; /* share of nonzeros; words of the whole tensor */
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
    uint32_t allowed[HC_MAP_SLOTS]; /* for each slot, the dimensions that may have a factor there */
    double mac_energy, cycle_share;
    hc_map_tensor tensor[HC_MAP_TENSORS];
    hc_map_level level[HC_MAP_LEVELS];
} hc_map_model;

typedef struct {
    int64_t factor[HC_MAP_SLOTS][HC_MAP_DIMS];
    int64_t order[HC_MAP_LEVELS];
} hc_map_choice;

/* `first` is the objective, `second` breaks ties: cycles, or energy if the objective is delay. */
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

/* Result of a part of an enumeration; found is false if nothing fits. */
typedef struct {
    bool found;
    hc_map_choice choice;
    hc_map_cost cost;
    int64_t evaluated;
} hc_map_found;

/* Reads a model from two arrays of numbers, in the order of `_pack` of hardware/mapper/model.py; `ints` stays
 * borrowed. */
hc_status hc_map_read(const int64_t *ints, int64_t n_ints, const double *reals, int64_t n_reals, hc_map_model *model,
                      hc_error *error);

/* A choice from n_slots * n_dims factors and n_levels orders; HC_VALUE if it does not belong to this model. */
hc_status hc_map_read_choice(const hc_map_model *model, const int64_t *numbers, int64_t count, hc_map_choice *choice,
                             hc_error *error);

/* false if a level overflows or needs more instances than there are. */
bool hc_map_cost_of(const hc_map_model *model, const hc_map_choice *choice, hc_map_cost *cost);

/* Whether a is strictly the better one. */
bool hc_map_better(const hc_map_cost *a, const hc_map_cost *b);

/* Every combination of factor rows start .. stop-1 with every combination of orders. For dimension d, table[d] has
 * n_rows[d] rows of one factor per slot; the last dimension changes fastest. */
void hc_map_enumerate(const hc_map_model *model, const int64_t *const *table, const int64_t *n_rows, int64_t start,
                      int64_t stop, hc_map_found *found);

/* HC_VALUE if the initial choice does not fit. */
hc_status hc_map_walk_begin(const hc_map_model *model, const hc_map_choice *choice, uint64_t seed, int64_t budget,
                            hc_map_walk *walk, hc_error *error);
void hc_map_walk_on(const hc_map_model *model, hc_map_walk *walk, int64_t steps);

#endif
