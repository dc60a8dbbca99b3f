/* Integer matmul with weights in a 2:4 pattern, which the sparse int8 units take as their left operand: y^T = w x^T.
 *
 * hc_integers_<family> left the kept values of w, and 4 bits for each block of four columns: the two places, the first in the
 * low bits. Segments, sums and scales are those of gemm.cu. A stage is 128 columns of k: 64 kept bytes and 16 of places a row
 * of w, 128 bytes a row of x (swizzle.h).
 */
#include "cuda/matmul/epilogue.h"
#include "cuda/matmul/places.h"
#include "cuda/matmul/swizzle.h"

namespace {

enum { STEP = 128, X_PITCH = STEP, W_PITCH = STEP / 2, PLACES = STEP / 8 };

/* A block computes BW rows of w times BX rows of x, each of its warps WW x WX. */
template <bool is_grouped, int BW, int BX, int WW, int WX, int STAGES> struct tile {
    enum { WARPS_X = BX / WX, THREADS = BW / WW * WARPS_X * HC_WARP, MI = WW / 16, NI = WX / 8 };
    enum { X_AT = BW * W_PITCH, PLACES_AT = X_AT + BX * X_PITCH, STAGE_BYTES = PLACES_AT + BW * PLACES };

    enum { W_PIECES = STEP / 32, X_PIECES = STEP / 16, W_LINES = THREADS / W_PIECES, X_LINES = THREADS / X_PIECES };
    enum { W_COPIES = BW / W_LINES, X_COPIES = BX / X_LINES };

    /* What a thread copies in each step. A row beyond the last is the last again, and its sums are not stored. */
    struct pieces {
        const int8_t *w[W_COPIES], *x[X_COPIES];
        const uint32_t *places;

        HC_DEVICE pieces(const hc_cuda_gemm_24 &p, int64_t w_row, int64_t x_row) {
            const hc_cuda_gemm &g = p.gemm;
            const int thread = (int)threadIdx.x;
#pragma unroll
            for (int i = 0; i < W_COPIES; i++)
                w[i] = g.w + hc_min(w_row + thread / W_PIECES + i * W_LINES, g.n - 1) * (g.ld / 2) +
                       thread % W_PIECES * 16;
#pragma unroll
            for (int i = 0; i < X_COPIES; i++)
                x[i] = g.x + hc_min(x_row + thread / X_PIECES + i * X_LINES, g.m - 1) * g.ld + thread % X_PIECES * 16;
            places = p.metadata + hc_min(w_row + thread, g.n - 1) * (g.ld / 32);
        }
        HC_DEVICE void load(int step) const {
            const int thread = (int)threadIdx.x;
            unsigned char *stage = hc_shared() + step % STAGES * STAGE_BYTES;
#pragma unroll
            for (int i = 0; i < W_COPIES; i++)
                hc_copy_16(stage + hc_piece_place<W_PIECES>(thread / W_PIECES, thread % W_PIECES) +
                               i * (W_LINES * W_PITCH),
                           w[i] + (int64_t)step * (STEP / 2));
#pragma unroll
            for (int i = 0; i < X_COPIES; i++)
                hc_copy_16(stage + X_AT + hc_piece_place<X_PIECES>(thread / X_PIECES, thread % X_PIECES) +
                               i * (X_LINES * X_PITCH),
                           x[i] + (int64_t)step * STEP);
            static_assert(BW == THREADS, "a thread copies the places of a row");
            hc_copy_16(stage + PLACES_AT + thread * PLACES, places + (int64_t)step * (STEP / 32));
        }
    };

    static HC_DEVICE void run(const hc_cuda_gemm_24 &p) {
        const hc_cuda_gemm &g = p.gemm;
        const int lane = hc_lane(), warp = hc_warp();
        const int warp_w = warp / WARPS_X * WW, warp_x = warp % WARPS_X * WX;
        const int64_t x_row = (int64_t)blockIdx.x * BX, w_row = (int64_t)blockIdx.y * BW;
        const int steps = (int)(g.ld / STEP);
        const pieces own(p, w_row, x_row);
        const int w_own = hc_piece_place<W_PIECES>(lane % 16, lane / 16);
        const int x_own = hc_piece_place<X_PIECES>(lane % 8, lane / 8);
        int32_t dots[MI][NI][4] = {};
        float sums[MI][NI][4] = {};
        for (int i = 0; i < STAGES - 1; i++) {
            if (i < steps)
                own.load(i);
            hc_copy_commit();
        }
        int64_t segment = 0, rest = g.length; /* columns until the segment ends */
        for (int step = 0; step < steps; step++) {
            hc_copy_wait<STAGES - 2>();
            hc_barrier();
            if (step + STAGES - 1 < steps)
                own.load(step + STAGES - 1);
            hc_copy_commit();
            const unsigned char *stage = hc_shared() + step % STAGES * STAGE_BYTES;
#pragma unroll
            for (int k = 0; k < STEP; k += 64) {
                uint32_t a[MI][4], b[NI][4], places[MI];
#pragma unroll
                for (int i = 0; i < MI; i++) {
                    const int line = warp_w + i * 16;
                    hc_load_matrix_x4(a[i], stage + line * W_PITCH + (w_own ^ k / 2));
                    places[i] = hc_legal_places(*(const uint32_t *)(stage + PLACES_AT +
                                                                    (line + lane / 4 + lane % 2 * 8) * PLACES + k / 8 +
                                                                    lane / 2 % 2 * 4));
                }
#pragma unroll
                for (int j = 0; j < NI; j++)
                    hc_load_matrix_x4(b[j], stage + X_AT + (warp_x + j * 8) * X_PITCH + (x_own ^ k));
#pragma unroll
                for (int i = 0; i < MI; i++)
#pragma unroll
                    for (int j = 0; j < NI; j++)
                        hc_mma_sparse_s8(dots[i][j], a[i], b[j], places[i]);
                rest -= 64;
                if constexpr (is_grouped) {
                    if (rest > 0 || segment == g.segments)
                        continue;
#pragma unroll
                    for (int i = 0; i < MI; i++)
#pragma unroll
                        for (int j = 0; j < NI; j++)
#pragma unroll
                            for (int r = 0; r < 4; r++) {
                                add_segment(g, x_row + warp_x + j * 8 + lane % 4 * 2 + r % 2,
                                            w_row + warp_w + i * 16 + lane / 4 + r / 2 * 8, segment, dots[i][j][r],
                                            &sums[i][j][r]);
                                dots[i][j][r] = 0;
                            }
                    rest = g.length;
                    segment++;
                }
            }
        }
        hc_copy_wait<0>();
#pragma unroll
        for (int j = 0; j < NI; j++)
#pragma unroll
            for (int c = 0; c < 2; c++) {
                const line_of<hc_cuda_gemm> line(g, x_row + warp_x + j * 8 + lane % 4 * 2 + c);
#pragma unroll
                for (int i = 0; i < MI; i++)
#pragma unroll
                    for (int r = 0; r < 4; r += 2)
                        line.store<is_grouped>(w_row + warp_w + i * 16 + lane / 4 + r / 2 * 8, dots[i][j][r + c],
                                               sums[i][j][r + c]);
            }
    }
};

} // namespace

HC_KERNEL(hc_gemm_24_16_grouped, hc_cuda_gemm_24, 128) { tile<true, 128, 16, 32, 16, 3>::run(p); }
HC_KERNEL(hc_gemm_24_64_grouped, hc_cuda_gemm_24, 128) { tile<true, 128, 64, 64, 32, 2>::run(p); }
#if !defined(__CUDA_ARCH__) || __CUDA_ARCH__ != 900 /* sm_90a has sparse_24_90a.cu */
HC_KERNEL(hc_gemm_24_64_folded, hc_cuda_gemm_24, 128) { tile<false, 128, 64, 64, 32, 2>::run(p); }
#endif
