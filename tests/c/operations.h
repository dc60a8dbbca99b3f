/* Operations without a format, each hashed by its output bytes: pruning, compressed weights, bitmaps, skipped zeros;
 * in sums.c: dense matmuls and convolutions, comparisons, emulated sums, a systolic array. */
#ifndef HC_TEST_OPERATIONS_H
#define HC_TEST_OPERATIONS_H

#include "hc.h"

/* Adds all output bytes to *hash; returns the status of the first call that fails. */
typedef hc_status operation_fn(const hc_run *run, uint64_t *hash, hc_error *error);
typedef struct {
    const char *name;
    operation_fn *take;
} operation;

operation_fn take_dense, take_compare, take_emulated, take_systolic;

extern const operation OPERATIONS[]; /* ends with a NULL name */

void add_bytes(uint64_t *hash, const void *data, int64_t bytes); /* FNV-1a */

#endif
