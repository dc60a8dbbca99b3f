/* N:M pruning: a thread a chunk of eight blocks, by the definition. */
#include "cuda/formats/known.h"

#define static HC_STATIC
#include "sparsity/nm.h"
#undef static

/* 2:4 as hc_nm_choose has it. Value i is kept if at least two of the three others are not better: larger, or as large and before it. */
static inline HC_DEVICE uint32_t hc_choose_2_of_4(const float x[4], float kept[2], bool *has_nan) {
    uint32_t score[4];
#pragma unroll
    for (int i = 0; i < 4; i++) {
        score[i] = hc_f32_bits(x[i]) & 0x7fffffff;
        *has_nan = *has_nan || score[i] > 0x7f800000;
    }
    /* wins_ij: j is not better than i */
    const bool wins_01 = score[0] >= score[1], wins_02 = score[0] >= score[2], wins_03 = score[0] >= score[3],
               wins_12 = score[1] >= score[2], wins_13 = score[1] >= score[3], wins_23 = score[2] >= score[3];
    const bool has_0 = (wins_01 & wins_02) | (wins_03 & (wins_01 | wins_02)),
               has_1 = (!wins_01 & wins_12) | (wins_13 & (!wins_01 | wins_12)),
               has_2 = (!wins_02 & !wins_12) | (wins_23 & (!wins_02 | !wins_12)), has_3 = has_0 + has_1 + has_2 < 2;
    kept[0] = has_0 ? x[0] : has_1 ? x[1] : x[2];
    kept[1] = has_3 ? x[3] : has_2 ? x[2] : x[1];
    return (has_0 ? 0u : has_1 ? 1u : 2u) | (has_3 ? 12u : has_2 ? 8u : 4u);
}

/* 2:4 of rows that consist of whole chunks: a thread has 32 values in registers, and stores their metadata as a word. */
static inline HC_DEVICE void hc_prune_2_of_4(const hc_cuda_prune &p) {
    enum { BLOCKS = HC_CUDA_KNOWN_COLUMNS / 4, PIECES = HC_CUDA_KNOWN_COLUMNS / 8 /* of 16 bytes, kept per chunk */ };
    const int slot = (int)threadIdx.x, lane = slot % 32, first = slot - lane;
    hc_load_known(p.chunks, p.x);
    hc_copy_wait<0>();
    hc_barrier();
    const hc_chunk chunk = hc_known_chunk(p.chunks, slot, BLOCKS);
    const int64_t begin = (int64_t)blockIdx.x * p.chunks.threads;
    if (chunk.columns > 0) {
        hc_16_bytes *row = (hc_16_bytes *)((float *)hc_shared() + slot * HC_CUDA_KNOWN_LD);
        alignas(16) float kept[2 * BLOCKS];
        uint32_t metadata = 0;
        bool has_nan = false;
#pragma unroll
        for (int i = 0; i < BLOCKS; i++) {
            const hc_16_bytes four = row[i];
            const float x[4] = {hc_f32_from_bits(four.word[0]), hc_f32_from_bits(four.word[1]),
                                hc_f32_from_bits(four.word[2]), hc_f32_from_bits(four.word[3])};
            metadata |= hc_choose_2_of_4(x, kept + 2 * i, &has_nan) << 4 * i;
        }
        if (has_nan) {
            hc_refuse_row(p.illegal, chunk.row);
#pragma unroll
            for (int i = 0; i < 2 * BLOCKS; i++)
                kept[i] = NAN;
        }
#pragma unroll
        for (int i = 0; i < PIECES; i++)
            hc_store_16(row + i, kept + 4 * i);
        ((uint32_t *)p.metadata)[begin + slot] = metadata;
    }
    hc_barrier();
    const int n = hc_block_chunks(p.chunks);
#pragma unroll
    for (int i = 0; i < PIECES; i++) {
        const int of_warp = i * 32 + lane, at = first + of_warp / PIECES, piece = of_warp % PIECES;
        if (at < n)
            ((hc_16_bytes *)p.values)[(begin + at) * PIECES + piece] =
                *(const hc_16_bytes *)((const float *)hc_shared() + at * HC_CUDA_KNOWN_LD + piece * 4);
    }
}

HC_KERNEL(hc_prune, hc_cuda_prune, 128) {
    if (p.chunks.ld == HC_CUDA_KNOWN_LD) {
        hc_prune_2_of_4(p);
        return;
    }
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
