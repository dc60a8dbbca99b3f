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

/* Entries of each column of one element of w (rows, columns), as pointers (columns + 1); false above 2^32 - 1. */
bool hc_eie_count(const float *w, int64_t rows, int64_t columns, int64_t elements, int64_t element, uint32_t *pointers);
/* Those entries. A code is 1 to 15: the value that is nearest in codebook[1 ..], which ascend; the lower one of two. */
void hc_eie_fill(const float *w, int64_t rows, int64_t columns, int64_t elements, int64_t element,
                 const float *codebook, const uint32_t *pointers, uint8_t *entries);

/* The first element whose pointers fall, begin above 0 or lead behind the entries, or whose column leaves its rows; -1
 * where all is well. *column: which one. */
int64_t hc_eie_look(const hc_eie *eie, int64_t *column);

/* Calls of one element, column after column: row of the matrix, column, value of each entry that is no padding. Inline, so
 * that `take` is. */
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

/* The cycles of section 4: one activation that is not 0 (x NULL: all) is broadcast a cycle, unless a queue of `depth`
 * is full; each element takes an entry a cycle from the activation at the head of its queue, and a cycle for a column
 * without entries. busy (elements): cycles with an entry; finish (elements) and leaves (depth) are scratch. */
void hc_eie_run(const hc_eie *eie, const float *x, int64_t depth, int64_t *busy, int64_t *finish, int64_t *leaves,
                hc_eie_cycles *found);

#endif
