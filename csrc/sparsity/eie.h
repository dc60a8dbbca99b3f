/* EIE's storage (base/compressed.h), element by element: encoding, checking, walking, and the cycles of its machine. */
#ifndef HC_SPARSITY_EIE_H
#define HC_SPARSITY_EIE_H

#include "base/compressed.h"

/* Rows of an element. */
static inline int64_t hc_eie_rows(int64_t rows, int64_t elements, int64_t element) {
    return element < rows ? (rows - element + elements - 1) / elements : 0;
}
static inline const uint32_t *hc_eie_pointers(const hc_eie *eie, int64_t element) {
    return eie->pointers + element * (eie->columns + 1);
}

/* Number of entries of each column of one element of w (rows, columns), as pointers (columns + 1); false above 2^32 -
 * 1. */
bool hc_eie_count(const float *w, int64_t rows, int64_t columns, int64_t elements, int64_t element, uint32_t *pointers);
/* Writes those entries. A code is 1 to 15: the nearest value of codebook[1 ..], which ascends; the lower one if two are
 * equally near. */
void hc_eie_fill(const float *w, int64_t rows, int64_t columns, int64_t elements, int64_t element,
                 const float *codebook, const uint32_t *pointers, uint8_t *entries);

/* Whether the pointers ascend from 0 and have as many entries as there are. */
bool hc_eie_pointers_fit(const hc_eie *eie);

/* Index of the first invalid element, or -1. An element is invalid if its pointers descend, begin above 0 or exceed the
 * number of entries, or if a column has entries below the last row. *column: the column of the error. */
int64_t hc_eie_look(const hc_eie *eie, int64_t *column);

/* Calls `take` for one element, column after column, with row of the matrix, column and value of each entry that is not
 * padding. Inline, so that `take` is inlined. */
typedef void hc_eie_take(void *context, int64_t row, int64_t column, float value);
static inline __attribute__((always_inline)) void
hc_eie_walk_element(const hc_eie *eie, int64_t element, const uint8_t *entries, hc_eie_take *take, void *context) {
    const uint32_t *pointers = hc_eie_pointers(eie, element);
    for (int64_t j = 0; j < eie->columns; j++) {
        int64_t row = element - eie->elements;
        for (uint32_t t = pointers[j]; t < pointers[j + 1]; t++) {
            row += ((entries[t] >> 4) + 1) * eie->elements;
            if (entries[t] & 15)
                take(context, row, j, eie->codebook[entries[t] & 15]);
        }
    }
}

/* The cycles of section 4: one nonzero activation (x NULL: every activation) is broadcast per cycle, unless a queue of
 * `depth` is full. Each element processes one entry per cycle for the activation at the head of its queue. A column
 * without entries takes one cycle. busy (elements): cycles with an entry; finish (elements) and leaves (depth) are
 * scratch. */
void hc_eie_run(const hc_eie *eie, const float *x, int64_t depth, int64_t *busy, int64_t *finish, int64_t *leaves,
                hc_eie_cycles *found);

#endif
