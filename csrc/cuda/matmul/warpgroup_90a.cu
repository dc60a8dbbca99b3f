/* Integer matmul of many rows on the matrix units that a warpgroup of sm_90a shares: gemm.cu with other instructions.
 *
 * A block computes 128 x 128, each of its two warpgroups 64 x 128. A stage is 128 bytes of k of both sides, in swizzled atoms
 * (wgmma.h): x, then w. Products of a stage run while the next stages arrive.
 */
#include "cuda/matmul/epilogue.h"
#include "cuda/matmul/wgmma.h"

namespace {

enum { TILE = 128, STEP = HC_ATOM_PITCH, THREADS = 256, STAGES = 4, SIDE_BYTES = TILE * STEP };

static inline HC_DEVICE void load(const hc_cuda_gemm &p, int64_t row, int64_t column, int64_t step) {
    unsigned char *stage = hc_shared() + step % STAGES * 2 * SIDE_BYTES;
    for (int i = (int)threadIdx.x; i < 2 * TILE * (STEP / 16); i += THREADS) {
        const int line = i / (STEP / 16), piece = i % (STEP / 16), side_line = line % TILE;
        /* a row beyond the last is the last again, and its sums are not stored */
        const int8_t *from = line < TILE ? p.x + hc_min(row + side_line, p.m - 1) * p.ld
                                         : p.w + hc_min(column + side_line, p.n - 1) * p.ld;
        const int64_t k = step * STEP + piece * 16; /* the last stage may have half of it */
        hc_copy_16_or_zeros(stage + line / TILE * SIDE_BYTES + hc_atom_place(side_line, piece),
                            k < p.ld ? from + k : from, k < p.ld);
    }
}

template <bool is_grouped> static inline HC_DEVICE void many_rows(const hc_cuda_gemm &p) {
    const int thread = (int)threadIdx.x % 128, lane = thread % 32, half = (int)threadIdx.x / 128;
    const int64_t row = (int64_t)blockIdx.x * TILE, column = (int64_t)blockIdx.y * TILE;
    const int64_t steps = (p.ld + STEP - 1) / STEP;
    const int64_t own_row = row + half * 64 + thread / 32 * 16 + lane / 4, own_column = column + lane % 4 * 2;
    int32_t dots[64] = {};
    float sums[is_grouped ? 64 : 1] = {};
    for (int64_t i = 0; i < STAGES - 1; i++) {
        if (i < steps)
            load(p, row, column, i);
        hc_copy_commit();
    }
    int64_t segment = 0, rest = p.length;
    bool adds = false;
    for (int64_t step = 0; step < steps; step++) {
        hc_copy_wait<STAGES - 2>();
        hc_fence_shared();
        hc_barrier();
        const unsigned char *stage = hc_shared() + step % STAGES * 2 * SIDE_BYTES;
        const uint64_t a = hc_descriptor(hc_shared_address(stage + half * (SIDE_BYTES / 2)));
        const uint64_t b = hc_descriptor(hc_shared_address(stage + SIDE_BYTES));
        if constexpr (!is_grouped)
            hc_wgmma_fence();
        for (int k = 0; k < STEP; k += 32) {
            if constexpr (is_grouped)
                hc_wgmma_fence();
            hc_wgmma_s8(dots, a + k / 16, b + k / 16, adds);
            adds = true;
            rest -= 32;
            if constexpr (is_grouped) {
                if (rest > 0 || segment == p.segments)
                    continue;
                hc_wgmma_commit();
                hc_wgmma_wait<0>();
#pragma unroll
                for (int i = 0; i < 64; i++)
                    add_segment(p, own_row + i / 2 % 2 * 8, own_column + i / 4 * 8 + i % 2, segment, dots[i], &sums[i]);
                adds = false;
                rest = p.length;
                segment++;
            }
        }
        hc_wgmma_commit();
        if (step + STAGES - 1 < steps) /* into the stage before, whose products have ended for all */
            load(p, row, column, step + STAGES - 1);
        hc_copy_commit();
        hc_wgmma_wait<0>();
    }
    hc_copy_wait<0>();
#pragma unroll
    for (int i = 0; i < 64; i++)
        store<is_grouped>(p, own_row + i / 2 % 2 * 8, own_column + i / 4 * 8 + i % 2, dots[i],
                          sums[is_grouped ? i : 0]);
}

} // namespace

HC_KERNEL(hc_gemm_90a_folded, hc_cuda_gemm, 256) { many_rows<false>(p); }
HC_KERNEL(hc_gemm_90a_grouped, hc_cuda_gemm, 256) { many_rows<true>(p); }
