/* Bitmasks of nonzeros: a fast kernel for whole words, a table for the rest. */
#include "ops/product/sparse.h"

void hc_sparse_masks_init(hc_sparse_masks *job, const hc_run *run, int n, int m) {
    const hc_kernel *line = HC_BEST(masks_nm, run);
    for (int i = 0; i < 2; i++, line = hc_kernel_below(line, run->isa))
        job->lines[i] = 64 % m == 0 ? line->fn.masks_nm : NULL;
    job->table = hc_nm_table_of(n, m);
    job->n = n;
    job->m = m;
}

void hc_sparse_masks_of(const hc_sparse_masks *job, const uint8_t *metadata, int64_t kept, int64_t first_block,
                        int64_t columns, uint64_t *masks) {
    const int n = job->n, m = job->m, bits = hc_position_bits(m);
    const int64_t bit = first_block * n * bits, bytes = hc_ceil_div(kept * bits, 8);
    int64_t words = 0;
    if (columns == 0)
        return;
    for (int i = 0; i < 2 && job->lines[i] && bit % 8 == 0 && words == 0; i++)
        words = job->lines[i](n, m, metadata + bit / 8, bytes - bit / 8, columns / 64, masks);
    const int64_t block = first_block + (words > 0 ? words * (64 / m) : 0), rest = columns - words * 64;
    if (rest > 0 && job->table)
        hc_nm_table_masks(job->table, metadata, kept, block, rest, masks + words);
    else if (rest > 0)
        hc_nm_masks(metadata, kept, n, m, block, rest, masks + words);
}
