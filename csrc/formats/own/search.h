/* Codes of many values with a table: the magnitude of a quotient, as the bits of a float32, names a bucket that has at
 * most one bound. A bucket has the bound, the code up to it, and the code of larger magnitudes.
 *
 *   bucket = clip((bits >> shift) - base, 0, n - 1), of negative values n more      code = magnitude > bound ? above : up to it
 *
 * Quotients with an error below OWN_DOUBT of them are in the bucket of a bound that is as near: whoever computes them so compares
 * their distance from the bound. Exact float32 quotients need no distance.
 */
#ifndef HC_OWN_SEARCH_H
#define HC_OWN_SEARCH_H

#include "base/sentence.h"

#include <stdbool.h>

#define OWN_DOUBT 0x1p-20f /* a rounded float64, a reciprocal, a product and a bound: 2^-22 */
#define OWN_TINY 0x1p-100f /* bounds that are smaller are bounds between 0 and all other magnitudes */

typedef struct {
    int32_t n; /* buckets of each sign; 0: no buckets separate the bounds */
    int32_t shift, base;
    float tiny;      /* quotients below it, except of 0, are uncertain */
    float *bound;    /* 2 * n; no bound: FLT_MAX */
    uint32_t *codes; /* 2 * n: the code up to the bound, and in bits 8 to 15 that above it */
    int64_t bytes;   /* of the two arrays */
} own_search;

/* How many buckets the record needs, with `bytes`; then fills them. */
own_search hc_own_search_size(const hc_sentence *own);
void hc_own_search_fill(const hc_sentence *own, own_search *search, void *memory);

#endif
