/* Compressed sparse rows (base/compressed.h): checking and transposing. */
#ifndef HC_SPARSITY_CSR_H
#define HC_SPARSITY_CSR_H

#include "base/compressed.h"

/* Index of the first invalid start, or -1. Starts ascend from 0 to `stored`. */
int64_t hc_csr_look_starts(const hc_csr *csr);

/* Stored values of some rows with valid starts. */
typedef struct {
    bool inside;    /* all indices are in [0, columns) */
    bool ascending; /* no index is below the preceding index of its row */
} hc_csr_indices;
hc_csr_indices hc_csr_look(const hc_csr *csr, int64_t first_row, int64_t rows);

/* Transposes a valid matrix: starts (columns + 1), indices and values (stored). Columns of a row ascend; equal columns
 * keep their order. */
void hc_csr_turn(const hc_csr *csr, int64_t *starts, int32_t *indices, float *values);

#endif
