/* Operations without a format, each as the bytes that come out: pruning, compressed weights, bitmaps, zeros left out;
 * those of sums.c: dense products and convolutions, comparisons, emulated sums, a systolic array. */
#ifndef HC_TEST_OPERATIONS_H
#define HC_TEST_OPERATIONS_H

#include "hc.h"

/* Adds all bytes of its answers to *hash; ends at the first call that fails, as it did. */
typedef hc_status operation_fn(const hc_run *run, uint64_t *hash, hc_error *error);
typedef struct {
    const char *name;
    operation_fn *take;
} operation;

operation_fn take_dense, take_compare, take_emulated, take_systolic;

extern const operation OPERATIONS[]; /* NULL is the name behind the last */

void add_bytes(uint64_t *hash, const void *data, int64_t bytes); /* FNV-1a */

#endif
