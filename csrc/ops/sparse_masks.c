/* Which columns are kept: the fast line for whole words, the definition for what it leaves. */
#include "kernels/kernel.h"
#include "ops/sparse.h"
#include "sparsity/nm.h"

hc_masks_nm_fn *hc_sparse_masks_line(const hc_run *run) {
    const hc_kernel *line = hc_kernel_pick("masks_nm", run->isa, NULL);
    return line ? (hc_masks_nm_fn *)line->fn : NULL;
}

void hc_sparse_masks(hc_masks_nm_fn *line, const uint8_t *metadata, int64_t kept, int n, int m, int64_t first_block,
                     int64_t columns, uint64_t *masks) {
    const int bits = hc_position_bits(m);
    const int64_t bit = first_block * n * bits, bytes = hc_ceil_div(kept * bits, 8);
    int64_t words = 0;
    if (columns == 0)
        return;
    if (line && 64 % m == 0 && bit % 8 == 0)
        words = line(n, m, metadata + bit / 8, bytes - bit / 8, columns / 64, masks);
    hc_nm_masks(metadata, kept, n, m, first_block + words * (64 / m), columns - words * 64, masks + words);
}
