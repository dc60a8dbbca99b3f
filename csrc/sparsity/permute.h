/* A search for an order of columns in which an N:M pattern keeps more: columns of scores are exchanged between groups
 * of M as long as the sum of the nonzeros grows (the idea of Pool and Yu, "Channel Permutations for N:M Sparsity",
 * NeurIPS 2021). Scores are integers, so sums are exact and the result is the same on every machine.
 */
#ifndef HC_SPARSITY_PERMUTE_H
#define HC_SPARSITY_PERMUTE_H

#include "base/base.h"

/* One sweep over every pair of groups, in rounds of disjoint pairs, which the threads share. In a pair the best
 * exchange of two columns is made until no exchange is an improvement. Returns the number of exchanges; -1 if out of
 * memory.
 *
 *   scores   (columns, ld) int16, 0 to 32767: column c at scores + c * ld; ld >= rows, a multiple of 32, padding 0
 *   order    (groups * m): the column at each position, -1 for empty positions; changed in place
 *   1 <= n < m <= 32
 *
 * Memory: 4 * (n + 2 * m + 1) * ld bytes per thread. */
int64_t hc_permute_sweep(int n_threads, int64_t rows, int64_t ld, const int16_t *scores, int n, int m, int64_t groups,
                         int32_t *order);

#endif
