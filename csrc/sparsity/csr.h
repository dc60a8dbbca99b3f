/* Compressed sparse rows (base/compressed.h): looked through, and transposed. */
#ifndef HC_SPARSITY_CSR_H
#define HC_SPARSITY_CSR_H

#include "base/compressed.h"

/* The number of the first start that is illegal: they go from 0 to `stored` without falling; -1 where all are well. */
int64_t hc_csr_look_starts(const hc_csr *csr);

/* Stored values of some rows whose starts are legal. */
typedef struct {
    bool inside;    /* all indices lie in [0, columns) */
    bool ascending; /* no index is below the one before it in its row */
} hc_csr_indices;
hc_csr_indices hc_csr_look(const hc_csr *csr, int64_t first_row, int64_t rows);

/* The transposed matrix of a legal one: starts (columns + 1), indices and values (stored). Columns of a row ascend,
 * equal ones keep the order that they had. */
void hc_csr_turn(const hc_csr *csr, int64_t *starts, int32_t *indices, float *values);

#endif
