/* One processing element of EIE, for the kernels that differ only in their registers. A column of many elements has about
 * one entry, so a loop over it ends at an unpredictable time. The entries of columns are therefore copied one after the
 * other, 32 bytes at a time, and then walked without a branch:
 *
 *     begins   1 . 2 . . 4 .      i + 1 where column i begins, 0 elsewhere; column 2 has no entries
 *     entries  a b c d e f g
 *
 * Included after the definition of add(value, x, lanes, sums), which adds a product to each sum whose x is not 0.
 */
#ifndef HC_EIE_COPIED_H
#define HC_EIE_COPIED_H

#include "kernels/compressed/eie_columns.h"

#include <string.h>

enum { COPIED = 32, ENTRIES = 1024 };

static inline __attribute__((always_inline)) void walk_copied(int64_t n, const int32_t *begins, const uint8_t *entries,
                                                              const float *x, int lanes, const float *codebook,
                                                              float *sums) {
    int64_t row = 0, i = 0;
    for (int64_t t = 0; t < n; t++) {
        const int64_t begun = begins[t];
        row = (begun ? 0 : row + 1) + (entries[t] >> 4);
        i = begun > i ? begun : i;
        add(codebook[entries[t] & 15], x + (i - 1) * lanes, lanes, sums + row * lanes);
    }
}

static inline __attribute__((always_inline)) void columns_of(int64_t n, const int32_t *columns, const float *x,
                                                             int lanes, const uint32_t *pointers,
                                                             const uint8_t *entries, int64_t readable,
                                                             const float *codebook, float *sums) {
    int32_t begins[ENTRIES + 1] = {0};
    uint8_t copied[ENTRIES + COPIED];
    int64_t held = 0;
    for (int64_t i = 0; i < n; i++) {
        const int64_t begin = pointers[columns[i]], count = pointers[columns[i] + 1] - begin;
        const bool is_long = count > COPIED || begin + COPIED > readable;
        if (is_long || held > ENTRIES - COPIED) {
            walk_copied(held, begins, copied, x, lanes, codebook, sums);
            memset(begins, 0, (size_t)(held + 1) * sizeof *begins);
            held = 0;
        }
        if (is_long) {
            const uint8_t *entry = entries + begin, *end = entry + count;
            if (lanes > 1 || x[i] != 0)
                for (float *to = sums; entry < end; to += lanes) {
                    to += (*entry >> 4) * lanes;
                    add(codebook[*entry++ & 15], x + i * lanes, lanes, to);
                }
            continue;
        }
        begins[held] = (int32_t)i + 1;
        memcpy(copied + held, entries + begin, COPIED);
        held += lanes > 1 || x[i] != 0 ? count : 0;
    }
    walk_copied(held, begins, copied, x, lanes, codebook, sums);
}

/* Padding of the format is left out for values that are not finite. */
#define HC_EIE_COLUMNS(isa)                                                                                            \
    void hc_eie_columns_##isa(int64_t n, const int32_t *columns, const float *x, int lanes, const uint32_t *pointers,  \
                              const uint8_t *entries, int64_t readable, const float *codebook, float *sums) {          \
        bool is_finite = true;                                                                                         \
        for (int64_t i = 0; i < n * lanes; i++)                                                                        \
            is_finite &= x[i] - x[i] == 0;                                                                             \
        if (!is_finite)                                                                                                \
            hc_eie_walk(n, columns, x, lanes, pointers, entries, codebook, sums);                                      \
        else if (lanes == 1)                                                                                           \
            columns_of(n, columns, x, 1, pointers, entries, readable, codebook, sums);                                 \
        else                                                                                                           \
            columns_of(n, columns, x, 8, pointers, entries, readable, codebook, sums);                                 \
    }

#endif
