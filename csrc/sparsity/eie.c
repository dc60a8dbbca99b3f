/* EIE's storage: encoding, walking, and the cycles of its elements. */
#include "sparsity/eie.h"

#include <math.h>
#include <string.h>

enum { AT_ONCE = 64 }; /* columns: cache lines of w are used entirely, and 64 counters fit into L1 */

bool hc_eie_count(const float *w, int64_t rows, int64_t columns, int64_t elements, int64_t element,
                  uint32_t *pointers) {
    uint64_t total = 0;
    pointers[0] = 0;
    for (int64_t first = 0; first < columns; first += AT_ONCE) {
        const int64_t n = hc_min(AT_ONCE, columns - first);
        uint32_t count[AT_ONCE] = {0}, next[AT_ONCE] = {0}; /* the first row after the last entry */
        uint32_t local = 0;
        for (int64_t i = element; i < rows; i += elements, local++) {
            const float *values = w + i * columns + first;
            for (int64_t j = 0; j < n; j++) { /* without a branch, which no processor predicts */
                const uint32_t taken = values[j] != 0 ? UINT32_MAX : 0;
                count[j] += taken & ((local - next[j]) / (HC_EIE_RUN + 1) + 1);
                next[j] = (taken & (local + 1)) | (~taken & next[j]);
            }
        }
        for (int64_t j = 0; j < n; j++) {
            total += count[j];
            if (total > UINT32_MAX)
                return false;
            pointers[first + j + 1] = (uint32_t)total;
        }
    }
    return true;
}

static int code_of(const double middle[HC_EIE_CODES], double value) {
    int code = 1; /* middle[c] is between codes c and c + 1, the last one infinity */
#pragma GCC unroll 4
    for (int step = 8; step > 0; step /= 2)
        code += value > middle[code + step - 1] ? step : 0;
    return code;
}

void hc_eie_fill(const float *w, int64_t rows, int64_t columns, int64_t elements, int64_t element,
                 const float *codebook, const uint32_t *pointers, uint8_t *entries) {
    double middle[HC_EIE_CODES] = {0};
    for (int c = 1; c < HC_EIE_CODES - 1; c++)
        middle[c] = ((double)codebook[c] + (double)codebook[c + 1]) / 2;
    middle[HC_EIE_CODES - 1] = INFINITY;
    for (int64_t first = 0; first < columns; first += AT_ONCE) {
        const int64_t n = hc_min(AT_ONCE, columns - first);
        int64_t next[AT_ONCE] = {0};
        uint32_t at[AT_ONCE];
        const uint32_t *end = pointers + first + 1; /* another thread may add nonzeros after they were counted */
        memcpy(at, pointers + first, (size_t)n * sizeof *at);
        for (int64_t i = element, local = 0; i < rows; i += elements, local++) {
            const float *values = w + i * columns + first;
            uint8_t found[AT_ONCE];
            int64_t n_found = 0;
            for (int64_t j = 0; j < n; j++) { /* without a branch, as above */
                found[n_found] = (uint8_t)j;
                n_found += values[j] != 0;
            }
            for (int64_t f = 0; f < n_found; f++) {
                const int64_t j = found[f];
                for (; local - next[j] > HC_EIE_RUN && at[j] < end[j]; next[j] += HC_EIE_RUN + 1)
                    entries[at[j]++] = HC_EIE_RUN << 4;
                if (at[j] < end[j])
                    entries[at[j]++] = (uint8_t)((local - next[j]) << 4 | code_of(middle, values[j]));
                next[j] = local + 1;
            }
        }
    }
}

bool hc_eie_pointers_fit(const hc_eie *eie) {
    int64_t base = 0;
    for (int64_t p = 0; p < eie->elements; p++) {
        const uint32_t *pointers = hc_eie_pointers(eie, p);
        for (int64_t j = 0; j < eie->columns; j++)
            if (pointers[j] > pointers[j + 1])
                return false;
        base += pointers[eie->columns];
        if (pointers[0] != 0 || base > eie->n_entries)
            return false;
    }
    return base == eie->n_entries;
}

int64_t hc_eie_look(const hc_eie *eie, int64_t *column) {
    int64_t base = 0;
    for (int64_t p = 0; p < eie->elements; p++) {
        const uint32_t *pointers = hc_eie_pointers(eie, p);
        const int64_t rows = hc_eie_rows(eie->rows, eie->elements, p);
        for (*column = 0; *column < eie->columns; ++*column) {
            const uint32_t begin = pointers[*column], end = pointers[*column + 1];
            if (begin > end || end > eie->n_entries - base || (*column == 0 && begin != 0))
                return p;
            int64_t reached = 0;
            for (uint32_t t = begin; t < end; t++)
                reached += (eie->entries[base + t] >> 4) + 1;
            if (reached > rows)
                return p;
        }
        if (eie->columns == 0 && pointers[0] != 0)
            return p;
        base += pointers[eie->columns];
    }
    return base == eie->n_entries ? -1 : eie->elements - 1;
}

void hc_eie_run(const hc_eie *eie, const float *x, int64_t depth, int64_t *busy, int64_t *finish, int64_t *leaves,
                hc_eie_cycles *found) {
    *found = (hc_eie_cycles){0};
    memset(busy, 0, (size_t)eie->elements * sizeof *busy);
    memset(finish, 0, (size_t)eie->elements * sizeof *finish);
    int64_t now =
        /* the cycle of the preceding broadcast; leaves[k % depth]: cycle in which activation k leaves the last queue */
        -1;
    for (int64_t j = 0; j < eie->columns; j++) {
        if (x && x[j] == 0)
            continue;
        const int64_t k = found->broadcasts++, place = k % depth;
        const int64_t soonest = now + 1;
        now = k < depth ? soonest : hc_max(soonest, leaves[place]);
        found->stalls += now - soonest;
        leaves[place] = 0;
        for (int64_t p = 0; p < eie->elements; p++) {
            const uint32_t *pointers = hc_eie_pointers(eie, p);
            const int64_t count = pointers[j + 1] - pointers[j];
            busy[p] += count;
            finish[p] = hc_max(now + 1, finish[p]) + hc_max(count, 1);
            leaves[place] = hc_max(leaves[place], finish[p]);
        }
    }
    int64_t base = 0;
    for (int64_t p = 0; p < eie->elements; p++) {
        const uint32_t *pointers = hc_eie_pointers(eie, p);
        found->cycles = hc_max(found->cycles, finish[p]);
        for (int64_t j = 0; j < eie->columns; j++)
            for (uint32_t t = pointers[j]; (!x || x[j] != 0) && t < pointers[j + 1]; t++)
                found->padding += (eie->entries[base + t] & 15) == 0;
        base += pointers[eie->columns];
    }
}
