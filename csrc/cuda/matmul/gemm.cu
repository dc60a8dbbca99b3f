/* Integer matmul: tiles of y on the int8 units, exact within a segment, with the CPU's last operations (epilogue.h).
 *
 * Rows of x and w lie as hc_integers_<family> left them.
 */
#include "cuda/matmul/tile.h"

namespace {

/* Rows as they lie. */
template <int N> struct rows : rows_of_bytes<N, hc_cuda_gemm>, columns_of_bytes {
    typedef hc_cuda_gemm params;
    using rows_of_bytes<N, params>::rows_of_bytes;
    static HC_DEVICE rows_of_w w_of(const params &p) { return {(const unsigned char *)p.w, p.n, p.ld}; }
    template <int COLUMNS> struct w_scales : scales_of<COLUMNS> {
        HC_DEVICE w_scales(const params &p, int64_t first, int own)
            : scales_of<COLUMNS>(p.w_scales, first, p.n, p.segments, [=](int i) { return own + sum_column(i); }) {}
    };
};

/* Values of several limbs, and sums beyond 32 bits: S = sum of 256^(i + j) P_ij in 64. Each P_ij is exact in 32 bits for MOST_K of k,
 * as 255^2 MOST_K < 2^31. */
template <bool is_grouped> struct wide {
    enum { BM = 16, BN = 32, LIMBS = 3, THREADS = 128, MOST_K = 32768 };
    enum { COPIES = (LIMBS * (BM + BN) * PIECES + THREADS - 1) / THREADS };
    int32_t found[LIMBS][LIMBS][4];
    int64_t dots[4];

    HC_DEVICE void add(const hc_cuda_gemm &p) {
#pragma unroll
        for (int i = 0; i < LIMBS; i++)
#pragma unroll
            for (int j = 0; j < LIMBS; j++) {
                if (i >= p.x_limbs || j >= p.w_limbs)
                    continue;
#pragma unroll
                for (int r = 0; r < 4; r++) {
                    dots[r] += (int64_t)found[i][j][r] * ((int64_t)1 << 8 * (i + j));
                    found[i][j][r] = 0;
                }
            }
    }

    HC_DEVICE void run(const hc_cuda_gemm &p) {
        const int lane = hc_lane(), warp_column = hc_warp() * 8, steps = (int)(p.ld / STEP);
        const int64_t row = (int64_t)blockIdx.x * BM, column = (int64_t)blockIdx.y * BN;
        const int x_lines = p.x_limbs * BM, lines = x_lines + p.w_limbs * BN;
        const int x_own = hc_piece_place<PIECES>(lane % 16, lane / 16);
        const int w_own = hc_piece_place<PIECES>(lane % 8, lane / 8);
        const int64_t y_column = column + warp_column + lane % 4 * 2;
        const int8_t *from[COPIES]; /* this thread's pieces */
#pragma unroll
        for (int i = 0; i < COPIES; i++) {
            const int line = ((int)threadIdx.x + i * THREADS) / PIECES, w_line = hc_min(line, lines - 1) - x_lines;
            from[i] = w_line < 0 ? p.x + (line / BM * p.m + hc_min(row + line % BM, p.m - 1)) * p.ld
                                 : p.w + (w_line / BN * p.n + hc_min(column + w_line % BN, p.n - 1)) * p.ld;
            from[i] += threadIdx.x % PIECES * 16;
        }
        int segments = (int)p.segments, rest = p.length, left = MOST_K; /* bytes of k until sums have 64 bits */
        int64_t segment = 0;
        float sums[4] = {};
        const auto copy =
            [&](int step) { /* to one of two stages, each of so many lines */
                            unsigned char *to = hc_shared() + step % 2 * lines * STEP;
#pragma unroll
                            for (int i = 0; i < COPIES; i++) {
                                const int line = ((int)threadIdx.x + i * THREADS) / PIECES;
                                if (line < lines)
                                    hc_copy_16(to + hc_piece_place<PIECES>(line, (int)threadIdx.x % PIECES),
                                               from[i] + (int64_t)step * STEP);
                            }
                            hc_copy_commit();
            };
        copy(0);
        for (int step = 0; step < steps; step++) {
            hc_copy_wait<0>();
            hc_barrier();
            if (step + 1 < steps)
                copy(step + 1);
            const unsigned char *stage = hc_shared() + step % 2 * lines * STEP;
            uint32_t b[LIMBS][4]; /* the eight columns of both halves of the step */
#pragma unroll
            for (int j = 0; j < LIMBS; j++)
                if (j < p.w_limbs)
                    hc_load_matrix_x4(b[j], stage + (x_lines + j * BN + warp_column) * STEP + w_own);
#pragma unroll
            for (int k = 0; k < STEP; k += 32) {
#pragma unroll
                for (int i = 0; i < LIMBS; i++) {
                    if (i >= p.x_limbs)
                        continue;
                    uint32_t a[4];
                    hc_load_matrix_x4(a, stage + i * BM * STEP + (x_own ^ k));
#pragma unroll
                    for (int j = 0; j < LIMBS; j++)
                        if (j < p.w_limbs)
                            hc_mma_bytes(found[i][j], a, b[j] + k / 16, i == p.x_limbs - 1, j == p.w_limbs - 1);
                }
                rest -= 32, left -= 32;
                const bool ends = is_grouped && rest <= 0 && segments > 0;
                if (!ends && left > 0)
                    continue;
                add(p);
                left = MOST_K;
                if constexpr (is_grouped) {
                    if (!ends)
                        continue;
#pragma unroll
                    for (int r = 0; r < 4; r++) {
                        add_segment(p, row + lane / 4 + r / 2 * 8, y_column + r % 2, segment, dots[r], &sums[r]);
                        dots[r] = 0;
                    }
                    rest = p.length;
                    segments--;
                    segment++;
                }
            }
        }
        add(p);
#pragma unroll
        for (int r = 0; r < 4; r++)
            store<is_grouped>(p, row + lane / 4 + r / 2 * 8, y_column + r % 2, dots[r], sums[r]);
    }
};

} // namespace

HC_KERNEL(hc_gemm_wide_folded, hc_cuda_gemm, 128) { wide<false>{}.run(p); }
HC_KERNEL(hc_gemm_wide_grouped, hc_cuda_gemm, 128) { wide<true>{}.run(p); }
#if !defined(__CUDA_ARCH__) || __CUDA_ARCH__ != 900 /* sm_90a has warpgroup_90a.cu */
HC_KERNEL(hc_gemm_s8_64_folded, hc_cuda_gemm, 128) { tile<false, 64, 64, 32, 32, 3, rows>::run(p); }
HC_KERNEL(hc_gemm_s8_64_grouped, hc_cuda_gemm, 128) { tile<true, 64, 64, 32, 32, 3, rows>::run(p); }
HC_KERNEL(hc_gemm_s8_128_folded, hc_cuda_gemm, 256, 2) { tile<false, 128, 128, 64, 32, 3, rows>::run(p); }
HC_KERNEL(hc_gemm_s8_128_grouped, hc_cuda_gemm, 256, 1) { tile<true, 128, 128, 64, 32, 3, rows>::run(p); }
#endif
HC_KERNEL(hc_gemm_s8_16_grouped, hc_cuda_gemm, 128) { tile<true, 16, 128, 16, 32, 3, rows>::run(p); }

HC_KERNEL(hc_clear, hc_cuda_clear, 256) {
    /* a multiple of 16 bytes */
    for (int64_t i = (int64_t)blockIdx.x * blockDim.x + threadIdx.x; i < p.bytes / 16;
         i += (int64_t)gridDim.x * blockDim.x)
        ((uint64_t *)p.data)[2 * i] = ((uint64_t *)p.data)[2 * i + 1] = 0;
}
