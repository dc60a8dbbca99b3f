/* N:M pruning: a thread a chunk of eight blocks, by the definition. */
#include "cuda/formats/known.h"

#define static HC_STATIC
#include "sparsity/nm.h"
#undef static

/* The blocks of a chunk with a NaN, a bit each; their values become zeros. */
static inline HC_DEVICE uint32_t hc_lost_blocks(float *x, int groups, int m) {
    uint32_t lost = 0;
    HC_SHORT_LOOP
    for (int i = 0; i < groups; i++) {
        bool has_nan = false;
        HC_SHORT_LOOP
        for (int j = 0; j < m; j++)
            has_nan = has_nan || (hc_f32_bits(x[i * m + j]) & 0x7fffffff) > 0x7f800000;
        lost |= (uint32_t)has_nan << i;
        HC_SHORT_LOOP
        for (int j = 0; j < m && has_nan; j++)
            x[i * m + j] = 0;
    }
    return lost;
}

/* What is kept of a chunk. Where nobody asks for invalid values, a block with a NaN has NaN only. */
static inline HC_DEVICE void hc_prune_chunk(const hc_cuda_prune &p, const hc_chunk &chunk, float *x, float *kept,
                                            uint8_t *metadata) {
    uint32_t lost = p.illegal ? 0 : hc_lost_blocks(x, chunk.groups, p.m);
    if (hc_nm_choose(p.n, p.m, chunk.groups, x, NULL, kept, metadata) != HC_DONE)
        hc_refuse_row(p.illegal, chunk.row);
    HC_SHORT_LOOP
    for (int i = 0; lost; i++, lost >>= 1) {
        HC_SHORT_LOOP
        for (int j = 0; j < p.n && (lost & 1); j++)
            kept[i * p.n + j] = NAN;
    }
}

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
HC_KERNEL(hc_prune_2_of_4, hc_cuda_prune, 128) {
    enum {
        BLOCKS = HC_CUDA_KNOWN_COLUMNS / 4,
        PIECES = HC_CUDA_KNOWN_COLUMNS / 8 /* of 16 bytes, kept per chunk */,
        PLACES_OF_ZEROS = 4 /* 0 and 1 */
    };
    const int slot = (int)threadIdx.x, lane = slot % HC_WARP, first = slot - lane;
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
            bool is_lost = false;
            const uint32_t places = hc_choose_2_of_4(x, kept + 2 * i, &is_lost);
            if (is_lost)
                kept[2 * i] = kept[2 * i + 1] = NAN;
            metadata |= (is_lost ? PLACES_OF_ZEROS : places) << 4 * i;
            has_nan = has_nan || is_lost;
        }
        if (has_nan)
            hc_refuse_row(p.illegal, chunk.row);
#pragma unroll
        for (int i = 0; i < PIECES; i++)
            hc_store_16(row + i, kept + 4 * i);
        ((uint32_t *)p.metadata)[begin + slot] = metadata;
    }
    hc_barrier();
    const int n = hc_block_chunks(p.chunks);
#pragma unroll
    for (int i = 0; i < PIECES; i++) {
        const int of_warp = i * HC_WARP + lane, at = first + of_warp / PIECES, piece = of_warp % PIECES;
        if (at < n)
            ((hc_16_bytes *)p.values)[(begin + at) * PIECES + piece] =
                *(const hc_16_bytes *)((const float *)hc_shared() + at * HC_CUDA_KNOWN_LD + piece * 4);
    }
}

HC_KERNEL(hc_prune, hc_cuda_prune, 128) {
    hc_load_chunks(p.chunks, p.geometry, p.x);
    hc_barrier();
    const int slot = (int)threadIdx.x, bits = hc_position_bits(p.m);
    const hc_chunk chunk = hc_chunk_of(p.chunks, p.geometry, slot);
    if (chunk.columns == 0)
        return;
    const int64_t block = chunk.number * p.chunks.groups;
    hc_prune_chunk(p, chunk, (float *)hc_shared() + slot * p.chunks.ld,
                   p.values + chunk.row * p.row_values + block * p.n,
                   p.metadata + chunk.row * p.row_bytes + block * p.n * bits / 8);
}
