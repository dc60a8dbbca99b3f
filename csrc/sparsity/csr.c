/* Compressed sparse rows: checking, and transposing by counting. */
#include "sparsity/csr.h"

#include <string.h>

int64_t hc_csr_look_starts(const hc_csr *csr) {
    bool falls = csr->starts[0] != 0 || csr->starts[csr->rows] != csr->stored;
    for (int64_t i = 0; i < csr->rows; i++) /* without branches */
        falls |= csr->starts[i + 1] < csr->starts[i];
    for (int64_t i = 0; falls && i <= csr->rows; i++) {
        const int64_t start = csr->starts[i], least = i ? csr->starts[i - 1] : 0;
        if (start < least || start > csr->stored || (i == 0 && start != 0) || (i == csr->rows && start != csr->stored))
            return i;
    }
    return -1;
}

hc_csr_indices hc_csr_look(const hc_csr *csr, int64_t first_row, int64_t rows) {
    const int64_t begin = csr->starts[first_row], end = csr->starts[first_row + rows];
    const uint32_t columns = (uint32_t)csr->columns;
    /* Checks all rows at once and without branches, so that compilers vectorize it. */
    uint32_t outside = 0;
    for (int64_t t = begin; t < end; t++)
        outside |= (uint32_t)csr->indices[t] >= columns;
    int64_t falls = 0; /* number of descending steps of columns, except between rows */
    for (int64_t part = begin + 1; part < end; part += 1 << 20) {
        int32_t count = 0;
        for (int64_t t = part; t < hc_min(part + (1 << 20), end); t++)
            count += csr->indices[t] < csr->indices[t - 1];
        falls += count;
    }
    for (int64_t i = first_row + 1; i < first_row + rows; i++) {
        const int64_t t = csr->starts[i]; /* the last of several empty rows is used */
        if (t > begin && t < csr->starts[i + 1])
            falls -= csr->indices[t] < csr->indices[t - 1];
    }
    return (hc_csr_indices){!outside, falls == 0};
}

void hc_csr_turn(const hc_csr *csr, int64_t *starts, int32_t *indices, float *values) {
    memset(starts, 0, (size_t)(csr->columns + 1) * sizeof *starts);
    for (int64_t t = 0; t < csr->stored; t++)
        starts[csr->indices[t] + 1]++;
    for (int64_t j = 0; j < csr->columns; j++)
        starts[j + 1] += starts[j];
    for (int64_t i = 0; i < csr->rows; i++)
        for (int64_t t = csr->starts[i]; t < csr->starts[i + 1]; t++) {
            const int64_t to = starts[csr->indices[t]]++; /* afterwards it is the start of the next row */
            indices[to] = (int32_t)i;
            values[to] = csr->values[t];
        }
    memmove(starts + 1, starts, (size_t)csr->columns * sizeof *starts);
    starts[0] = 0;
}
