/* N:M pruning: a thread a chunk of eight blocks, by the definition.
 *
 *   x -> shared values of a chunk -> definition -> kept values in their place, metadata behind all values -> both, in order
 *
 * Where chunks do not follow each other in memory, a thread writes its results itself.
 */
#include "cuda/codec.h"

#define static HC_STATIC
#include "sparsity/nm.h"
#undef static

/* From the block of the first NaN of a chunk on, all kept values are NaN. */
static inline HC_DEVICE void hc_prune_nan(const hc_cuda_prune &p, int groups, int bits, int first, float *kept,
                                          uint8_t *metadata) {
    HC_SHORT_LOOP
    for (int i = first * p.n; i < groups * p.n; i++)
        kept[i] = NAN;
    HC_SHORT_LOOP
    for (int i = first * p.n * bits / 8; i < (groups * p.n * bits + 7) / 8; i++)
        metadata[i] = 0;
}

/* What the threads have in shared memory to where it lies chunk behind chunk. */
static inline HC_DEVICE void hc_store_pruned(const hc_cuda_prune &p, int bytes) {
    const int64_t first = (int64_t)blockIdx.x * p.chunks.threads;
    const int all = hc_block_chunks(p.chunks), pieces = 2 * p.n;
    hc_16_bytes *values = (hc_16_bytes *)p.values + first * pieces;
    HC_SHORT_LOOP
    for (uint32_t i = threadIdx.x; i < (uint32_t)(all * pieces); i += blockDim.x) {
        const uint32_t slot = i / (uint32_t)pieces;
        const float *from = (const float *)hc_shared() + slot * p.chunks.ld + (i - slot * pieces) * 4;
        values[i] = {{hc_f32_bits(from[0]), hc_f32_bits(from[1]), hc_f32_bits(from[2]), hc_f32_bits(from[3])}};
    }
    const uint8_t *own = (const uint8_t *)((const float *)hc_shared() + p.chunks.threads * p.chunks.ld);
    uint8_t *metadata = p.metadata + first * bytes;
    const int words = (uintptr_t)metadata % 4 ? 0 : all * bytes / 4;
    HC_SHORT_LOOP
    for (int i = (int)threadIdx.x; i < words; i += (int)blockDim.x)
        ((uint32_t *)metadata)[i] = ((const uint32_t *)own)[i];
    HC_SHORT_LOOP
    for (int i = 4 * words + (int)threadIdx.x; i < all * bytes; i += (int)blockDim.x)
        metadata[i] = own[i];
}

HC_KERNEL(hc_prune, hc_cuda_prune, 128) {
    hc_load_chunks(p.chunks, p.geometry, p.x);
    hc_barrier();
    const int slot = (int)threadIdx.x, bits = hc_position_bits(p.m), bytes = p.n * bits;
    const bool is_flat = p.chunks.flat & HC_FLAT_PARTS;
    const hc_chunk chunk = hc_chunk_of(p.chunks, p.geometry, slot);
    if (chunk.columns > 0) {
        const int64_t block = chunk.number * p.chunks.groups;
        float *x = (float *)hc_shared() + slot * p.chunks.ld;
        float *kept = is_flat ? x : p.values + chunk.row * p.row_values + block * p.n;
        uint8_t *metadata = is_flat ? (uint8_t *)((float *)hc_shared() + p.chunks.threads * p.chunks.ld) + slot * bytes
                                    : p.metadata + chunk.row * p.row_bytes + block * bytes / 8;
        const int64_t found = p.m == 4 ? hc_nm_choose(p.n, 4, chunk.groups, x, NULL, kept, metadata)
                                       : hc_nm_choose(p.n, p.m, chunk.groups, x, NULL, kept, metadata);
        if (found != HC_DONE) {
            hc_refuse_row(p.illegal, chunk.row);
            hc_prune_nan(p, chunk.groups, bits, (int)found / p.m, kept, metadata);
        }
    }
    if (!is_flat)
        return;
    hc_barrier();
    hc_store_pruned(p, bytes);
}
