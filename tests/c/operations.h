/* Operations without a format, each as the bytes that come out: pruning, compressed weights, bitmaps, zeros left out. */
#ifndef HC_TEST_OPERATIONS_H
#define HC_TEST_OPERATIONS_H

#include "hc.h"

/* Adds all bytes of its answers to *hash; false, with a sentence, where a call fails. */
typedef struct {
    const char *name;
    bool (*take)(const hc_run *run, uint64_t *hash, hc_error *error);
} operation;

extern const operation OPERATIONS[]; /* NULL is the name behind the last */

void add_bytes(uint64_t *hash, const void *data, int64_t bytes); /* FNV-1a */

#endif
