/* GROUPS groups of values, one per lane, and their results: the data of encode_blocks.h and plain.h. */
#ifndef HC_GGML_TILE_H
#define HC_GGML_TILE_H

#include "formats/ggml/kinds.h"

#include <string.h>

#ifndef HC_GGML_GROUPS
#define HC_GGML_GROUPS 16 /* the groups of a block of 256 values; types without such blocks need 1 */
#endif
enum { GROUPS = HC_GGML_GROUPS, CANDIDATES = 8 };
enum { AT_ONCE = GROUPS * GGML_MAX_GROUP > GGML_MAX_BLOCK ? GROUPS * GGML_MAX_GROUP : GGML_MAX_BLOCK };

/* Sums of each group: w, w x, w q, w q^2 and w q x. */
typedef struct {
    _Alignas(64) float w[GROUPS], x[GROUPS], q[GROUPS], qq[GROUPS], qx[GROUPS];
} hc_ggml_sums;

typedef struct {
    _Alignas(64) float x[GGML_MAX_GROUP][GROUPS], w[GGML_MAX_GROUP][GROUPS]; /* value by value, one lane per group */
    _Alignas(64) float scale[GROUPS], minimum[GROUPS];                       /* value = scale * q - minimum */
    _Alignas(64) float inverse[GROUPS];                                      /* of scales, or 0 */
    hc_ggml_sums sums;
    float d[GROUPS], e[GROUPS];          /* of blocks */
    _Alignas(64) float small[2][GROUPS]; /* the integers of scales and minima */
    uint8_t rows[AT_ONCE + 64];          /* codes in order, followed by bytes that packing may read */
} hc_ggml_tile;

/* a / b, or 0 if b is 0. */
static inline lanes lanes_ratio(lanes a, lanes b) {
    return lanes_select(lanes_above(lanes_abs(b), lanes_of(0)), lanes_div(a, b), lanes_of(0));
}

/* Clamps every value to the range that blocks can store. */
static inline lanes ggml_counted(lanes x) {
    const lanes most = lanes_of(0x1p40f), zero = lanes_of(0);
    x = lanes_max(lanes_min(x, most), lanes_sub(zero, most));
    return lanes_select(lanes_above(lanes_of(0x1p-40f), lanes_abs(x)), zero, x);
}

/* Transposes `present` contiguous groups of n values into lanes; other lanes are zero. n is a multiple of 16. */
static inline __attribute__((always_inline)) void ggml_spread(const float *values, int n, int present, bool counts,
                                                              float to[GGML_MAX_GROUP][GROUPS]) {
    float padded[GROUPS * GGML_MAX_GROUP];
    if (present < GROUPS) {
        memset(padded, 0, sizeof padded);
        memcpy(padded, values, (size_t)(present * n) * sizeof *padded);
        values = padded;
    }
    for (int lane = 0; lane < GROUPS; lane += LANES)
        for (int j = 0; j < n; j += LANES) {
            lanes block[LANES];
#pragma GCC unroll 16
            for (int i = 0; i < LANES; i++) {
                block[i] = lanes_load(values + (lane + i) * n + j);
                block[i] = counts ? ggml_counted(block[i]) : block[i];
            }
            lanes_transpose(block);
#pragma GCC unroll 16
            for (int i = 0; i < LANES; i++)
                lanes_store(&to[j + i][lane], block[i]);
        }
}

/* weights: as values, or NULL. */
static inline void ggml_load(const float *values, const float *weights, int n, int present, hc_ggml_tile *tile) {
    ggml_spread(values, n, present, true, tile->x);
    if (weights)
        ggml_spread(weights, n, present, false, tile->w);
}

/* The first value with the largest magnitude. */
static inline lanes ggml_largest(const hc_ggml_tile *tile, int n, int lane) {
    lanes found = lanes_load(&tile->x[0][lane]);
    for (int j = 1; j < n; j++) {
        const lanes x = lanes_load(&tile->x[j][lane]);
        found = lanes_select(lanes_above(lanes_abs(x), lanes_abs(found)), x, found);
    }
    return found;
}

static inline void ggml_ends(const hc_ggml_tile *tile, int n, int lane, lanes *low, lanes *high) {
    *low = *high = lanes_load(&tile->x[0][lane]);
    for (int j = 1; j < n; j++) {
        const lanes x = lanes_load(&tile->x[j][lane]);
        *low = lanes_min(x, *low);
        *high = lanes_max(x, *high);
    }
}

#endif
