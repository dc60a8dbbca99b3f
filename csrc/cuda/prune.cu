/* N:M pruning: a thread a chunk of eight blocks, by the definition. */
#include "cuda/codec.h"

#define static HC_STATIC
#include "sparsity/nm.h"
#undef static

HC_KERNEL(hc_prune, hc_cuda_prune, 128) {
    hc_load_chunks(p.chunks, p.geometry, p.x);
    hc_barrier();
    const int slot = (int)threadIdx.x, bits = hc_position_bits(p.m);
    const hc_chunk chunk = hc_chunk_of(p.chunks, p.geometry, slot);
    if (chunk.columns == 0)
        return;
    const int64_t block = chunk.number * p.chunks.groups;
    const int64_t found = hc_nm_choose(p.n, p.m, chunk.groups, (const float *)hc_shared() + slot * p.chunks.ld, NULL,
                                       p.values + chunk.row * p.row_values + block * p.n,
                                       p.metadata + chunk.row * p.row_bytes + block * p.n * bits / 8);
    if (found == HC_DONE)
        return;
    if (p.illegal) {
        hc_refuse_row(p.illegal, chunk.row);
        return;
    }
    const float *x = (const float *)hc_shared() + slot * p.chunks.ld;
    float *kept = p.values + chunk.row * p.row_values + block * p.n;
    HC_SHORT_LOOP
    for (int i = 0; i < chunk.groups * p.m; i++)
        if (x[i] != x[i]) {
            HC_SHORT_LOOP
            for (int j = 0; j < p.n; j++)
                kept[i / p.m * p.n + j] = NAN;
        }
}
