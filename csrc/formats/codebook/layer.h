/* One layer of the dynamic program of optimal k-means (kmeans.c): the best clusters that end at each place. The
 * including file defines the vector length HC_LAYER_WIDTH: 2, 4 or 8. The bits are the same for each.
 *
 * Places at multiples of 8 (PLACES) are found one by one, in strides of a descending power of two: the best i is
 * between those of the two neighbours. The places between two of these are searched together, each over all i between
 * the i of the two.
 */
#ifndef HC_LAYER_H
#define HC_LAYER_H

#include "formats/codebook/places.h"

#include <string.h>

typedef double hc_doubles __attribute__((vector_size(HC_LAYER_WIDTH * sizeof(double))));
typedef int64_t hc_integers __attribute__((vector_size(HC_LAYER_WIDTH * sizeof(int64_t))));
enum { PLACES = HC_PLACES_TOGETHER, WIDTH = HC_LAYER_WIDTH, VECTORS = PLACES / WIDTH };

/* The best gain of each lane so far and its i; initially the first i, with gain -1. The initial i remains if every gain
 * is NaN (0 / 0, if weights vanish in the sum of the preceding weights). The bounds from neighbours may then also
 * cross, and the lower one is used.
 */
typedef struct {
    hc_doubles largest;
    hc_integers at;
} hc_best;

/* The gains of clusters that end at the places of these sums and weights; i: index of their beginning, in every
 * lane. */
#define TAKE_BETTER(best, gain, difference, part, i)                                                                   \
    do {                                                                                                               \
        const hc_doubles total = (gain) + (difference) * (difference) / (part);                                        \
        const hc_integers is_better = total > (best)->largest;                                                         \
        (best)->largest =                                                                                              \
            (hc_doubles)(((hc_integers)total & is_better) | ((hc_integers)(best)->largest & ~is_better));              \
        (best)->at = ((i) & is_better) | ((best)->at & ~is_better);                                                    \
    } while (0)

/* The best i of [first, last] for clusters that end at j, the smallest if gains are equal; its gain is written to
 * *best. */
static inline int64_t best_split(const hc_places *places, int64_t first, int64_t last, int64_t j, double *best) {
    const double weight = places->weight[j], sum = places->sum[j];
    double known = -1;
    int64_t i = first, found = first;
    if (last - first >= 2 * WIDTH) {
        hc_integers here = (hc_integers){0} + first;
        hc_best lanes = {.largest = (hc_doubles){0} - 1, .at = here};
        for (int lane = 0; lane < WIDTH; lane++)
            here[lane] += lane;
        for (; i + WIDTH <= last + 1; i += WIDTH, here += WIDTH) {
            hc_doubles sums, weights, gains;
            memcpy(&sums, places->sum + i, sizeof sums);
            memcpy(&weights, places->weight + i, sizeof weights);
            memcpy(&gains, places->previous + i, sizeof gains);
            TAKE_BETTER(&lanes, gains, sum - sums, weight - weights, here);
        }
        for (int lane = 0; lane < WIDTH; lane++) {
            const double total = lanes.largest[lane];
            found = total > known || (total == known && lanes.at[lane] < found) ? lanes.at[lane] : found;
            known = total > known ? total : known;
        }
    }
    for (; i <= last; i++) {
        const double difference = sum - places->sum[i];
        const double total = places->previous[i] + difference * difference / (weight - places->weight[i]);
        found = total > known ? i : found;
        known = total > known ? total : known;
    }
    *best = known;
    return found;
}

/* The best i for each of the places [begin, block + PLACES), which follow `block`, among the i of [first, last] that
 * precede the place. */
static inline void best_splits(hc_places *places, int64_t first, int64_t last, int64_t block, int64_t begin,
                               uint16_t *split) {
    hc_doubles sums[VECTORS], weights[VECTORS];
    hc_best best[VECTORS];
    double largest[PLACES];
    int64_t at[PLACES];
    memcpy(sums, places->sum + block, sizeof sums);
    memcpy(weights, places->weight + block, sizeof weights);
#pragma GCC unroll 4
    for (int v = 0; v < VECTORS; v++)
        best[v] = (hc_best){.largest = (hc_doubles){0} - 1, .at = (hc_integers){0} + first};
    int64_t i = first;
    for (; i <= hc_min(last, block); i++) {
        const double sum = places->sum[i], weight = places->weight[i], gain = places->previous[i];
        const hc_integers here = (hc_integers){0} + i;
#pragma GCC unroll 4
        for (int v = 0; v < VECTORS; v++)
            TAKE_BETTER(best + v, gain, sums[v] - sum, weights[v] - weight, here);
    }
#pragma GCC unroll 4
    for (int v = 0; v < VECTORS; v++) {
        memcpy(largest + v * WIDTH, &best[v].largest, sizeof best[v].largest);
        memcpy(at + v * WIDTH, &best[v].at, sizeof best[v].at);
    }
    for (; i <= last; i++) /* i is in the block: only the places after i use it */
        for (int64_t lane = i + 1 - block; lane < PLACES; lane++) {
            const double difference = places->sum[block + lane] - places->sum[i];
            const double part = places->weight[block + lane] - places->weight[i];
            const double total = places->previous[i] + difference * difference / part;
            at[lane] = total > largest[lane] ? i : at[lane];
            largest[lane] = total > largest[lane] ? total : largest[lane];
        }
    const int64_t end = hc_min(block + PLACES, places->n + 1);
    for (int64_t j = begin; j < end; j++) {
        split[j] = (uint16_t)at[j - block];
        places->gain[j] = largest[j - block];
    }
}

/* The places of [begin, end) at odd multiples of a stride. */
static inline void fill_stride(hc_places *places, int t, const uint16_t *below, uint16_t *split, int64_t stride,
                               int64_t begin, int64_t end) {
    for (int64_t j = begin + stride; j < end; j += 2 * stride) {
        if (j < t)
            continue;
        const int64_t known = below ? hc_max(below[j], t - 1) : t - 1;
        const int64_t first = j - stride >= t ? hc_max(split[j - stride], known) : known;
        const int64_t last = j + stride <= places->n ? hc_min(split[j + stride], j - 1) : j - 1;
        split[j] = (uint16_t)best_split(places, first, hc_max(last, first), j, &places->gain[j]);
    }
}

/* hc_fill_layer_fn. Strides below SPAN are processed span by span, so that the sums that one span reads stay in L1. */
static inline void fill_all_places(hc_places *places, int t, const uint16_t *below, uint16_t *split) {
    enum { SPAN = 512 };
    const int64_t n = places->n;
    int64_t stride = PLACES;
    while (stride * 2 <= n)
        stride *= 2;
    for (; stride >= SPAN; stride /= 2)
        fill_stride(places, t, below, split, stride, 0, n + 1);
    for (int64_t span = 0; span < n; span += SPAN) {
        const int64_t end = hc_min(span + SPAN, n + 1);
        for (int64_t within = hc_min(stride, SPAN / 2); within >= PLACES; within /= 2)
            fill_stride(places, t, below, split, within, span, end);
        for (int64_t block = span; block < end; block += PLACES) {
            const int64_t begin = hc_max(block + 1, t);
            if (begin >= block + PLACES || begin > n)
                continue;
            const int64_t known = below ? hc_max(below[begin], t - 1) : t - 1;
            const int64_t first = block >= t ? hc_max(split[block], known) : known;
            const int64_t last = block + PLACES <= n ? split[block + PLACES] : n - 1;
            best_splits(places, first, hc_min(hc_max(last, first), block + PLACES - 2), block, begin, split);
        }
    }
}

#endif
