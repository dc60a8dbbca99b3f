/* Data of the dynamic program of optimal k-means, and one of its layers, which each SIMD set implements (layer.h). */
#ifndef HC_PLACES_H
#define HC_PLACES_H

#include "base/base.h"

enum { HC_PLACES_TOGETHER = 8 };

/* Places at which a cluster may end, with their prefix sums; place 0 is the beginning. */
typedef struct {
    int64_t n; /* the last place; HC_PLACES_TOGETHER zeros follow its sums */
    int64_t *position;
    double *weight, *sum, *gain, *previous;
    uint16_t *split; /* of the layers 2 to k - 1, n + 1 each */
} hc_places;

/* Best clusters for t clusters that end at each place, from those for t - 1 (`previous`). below: the splits of t - 1,
 * or NULL. Every set gives the same bits. */
typedef void hc_fill_layer_fn(hc_places *places, int t, const uint16_t *below, uint16_t *split);

#endif
