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
    float *x = (float *)hc_shared() + slot * p.chunks.ld, *kept = p.values + chunk.row * p.row_values + block * p.n;
    uint32_t lost = 0; /* blocks with a NaN, which are zeros then */
    for (;;) {
        const int64_t found = hc_nm_choose(p.n, p.m, chunk.groups, x, NULL, kept,
                                           p.metadata + chunk.row * p.row_bytes + block * p.n * bits / 8);
        if (found == HC_DONE)
            break;
        if (p.illegal) {
            hc_refuse_row(p.illegal, chunk.row);
            return;
        }
        const int number = (int)found / p.m;
        lost |= 1u << number;
        HC_SHORT_LOOP
        for (int i = 0; i < p.m; i++)
            x[number * p.m + i] = 0;
    }
    HC_SHORT_LOOP
    for (int i = 0; lost; i++, lost >>= 1) {
        HC_SHORT_LOOP
        for (int j = 0; j < p.n && (lost & 1); j++)
            kept[i * p.n + j] = NAN;
    }
}
