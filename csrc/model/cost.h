/* The layout of a choice: everything that depends only on its factors is computed once, so that every order of its
 * loops is cheap to evaluate. */
#ifndef HC_MODEL_COST_H
#define HC_MODEL_COST_H

#include "model/mapper.h"

typedef struct {
    double size[HC_MAP_LEVELS + 1][HC_MAP_DIMS];     /* of a tile at a level; all ones at the multipliers */
    double in_time[HC_MAP_LEVELS];                   /* product of a level's temporal bounds */
    double used[HC_MAP_LEVELS];                      /* instances in use */
    double tile[HC_MAP_TENSORS][HC_MAP_LEVELS + 1];  /* one word at the multipliers */
    bool shared[HC_MAP_TENSORS];                     /* neighbours below the last level have one word */
    double copies[HC_MAP_TENSORS][HC_MAP_LEVELS];    /* different tiles among the children of one instance */
    double partition[HC_MAP_TENSORS][HC_MAP_LEVELS]; /* of the output alone */
    double cycles;
} hc_map_layout;

/* false if the factors do not fit. */
bool hc_map_lay_out(const hc_map_model *model, const hc_map_choice *choice, hc_map_layout *layout);
void hc_map_finish(const hc_map_model *model, const hc_map_choice *choice, const hc_map_layout *layout,
                   hc_map_cost *cost);

#endif
