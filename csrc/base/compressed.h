/* Matrices of which only some values are stored, as all folders use them; plain data. */
#ifndef HC_BASE_COMPRESSED_H
#define HC_BASE_COMPRESSED_H

#include "base/base.h"

/* Compressed sparse rows: row i has the stored values starts[i] .. starts[i + 1] - 1, each with its column. */
typedef struct {
    int64_t rows, columns, stored;
    const int64_t *starts;  /* (rows + 1) */
    const int32_t *indices; /* (stored) */
    const float *values;    /* (stored) */
} hc_csr;

/* EIE's storage (Han et al., ISCA 2016, arXiv 1602.01528, section 3): row i belongs to processing element i % elements,
 * as its row i / elements. For each column an element stores each nonzero of its rows as one byte:
 *
 *   low 4 bits    index into a codebook of 16 values; the value of index 0 is 0
 *   high 4 bits   number of the element's rows skipped before; above 15, entries of code 0 and run 15 are inserted
 *
 * pointers[p * (columns + 1) + j]: first entry of column j of element p, counted in that element's entries. The entries
 * of element 0 come first in `entries`. Runs restart in each column. */
enum { HC_EIE_CODES = 16, HC_EIE_RUN = 15 };
typedef struct {
    int64_t rows, columns, elements, n_entries;
    const float *codebook;    /* (HC_EIE_CODES) */
    const uint32_t *pointers; /* (elements, columns + 1) */
    const uint8_t *entries;   /* (n_entries) */
} hc_eie;

/* Cost of a run of its elements. */
typedef struct {
    int64_t cycles, broadcasts, stalls; /* stalls: cycles in which an activation waited for a full queue */
    int64_t padding;                    /* processed entries of code 0 */
} hc_eie_cycles;

#endif
