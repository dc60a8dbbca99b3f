/* Bitmasks of nonzeros: a fast kernel for whole words and for a copy of the last one, a table for the rest. */
#include "ops/product/sparse.h"

#include <string.h>

enum { WORD_BYTES = 64 }; /* metadata of 64 columns, at most */

void hc_sparse_masks_init(hc_sparse_masks *job, const hc_run *run, int n, int m) {
    const hc_kernel *line = HC_BEST(masks_nm, run);
    for (int i = 0; i < 2; i++, line = hc_kernel_below(line, run->isa))
        job->lines[i] = 64 % m == 0 ? line->fn.masks_nm : NULL;
    job->table = hc_nm_table_of(n, m);
    job->n = n;
    job->m = m;
}

/* Words of the fast kernels from a whole byte of metadata on. */
static int64_t whole_words(const hc_sparse_masks *job, const uint8_t *metadata, int64_t bytes, int64_t words,
                           uint64_t *masks) {
    int64_t done = 0;
    for (int i = 0; i < 2 && job->lines[i] && done == 0; i++)
        done = job->lines[i](job->n, job->m, metadata, bytes, words, masks);
    return done;
}

void hc_sparse_masks_of(const hc_sparse_masks *job, const uint8_t *metadata, int64_t kept, int64_t first_block,
                        int64_t columns, uint64_t *masks) {
    const int n = job->n, m = job->m, bits = hc_position_bits(m);
    const int64_t bytes = hc_ceil_div(kept * bits, 8);
    int64_t at = first_block * n * bits, words = 0;
    if (columns == 0)
        return;
    if (at % 8 == 0)
        words = whole_words(job, metadata + at / 8, bytes - at / 8, columns / 64, masks);
    const int64_t block = first_block + (words > 0 ? words * (64 / m) : 0), rest = columns - words * 64;
    at = block * n * bits;
    if (rest > 0 && rest < 64 && at % 8 == 0 && job->lines[0]) {
        uint8_t last[WORD_BYTES] = {0};
        memcpy(last, metadata + at / 8, (size_t)hc_min(bytes - at / 8, WORD_BYTES));
        if (whole_words(job, last, WORD_BYTES, 1, masks + words) == 1) {
            masks[words] &= ((uint64_t)1 << rest) - 1;
            return;
        }
    }
    if (rest > 0 && job->table)
        hc_nm_table_masks(job->table, metadata, kept, block, rest, masks + words);
    else if (rest > 0)
        hc_nm_masks(metadata, kept, n, m, block, rest, masks + words);
}
