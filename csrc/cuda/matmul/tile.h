/* A tile of an integer matmul, exact within a segment (epilogue.h): a block computes BM x BN, each of its warps WM x WN.
 *
 * Both sides arrive in shared memory 64 bytes of k at a time, some steps ahead; rows stand 80 bytes apart there, so that the
 * eight rows of a matrix touch all banks. `operands` says where rows lie and what becomes of sums:
 *
 *   operands(p, piece of x, pieces)  what a thread knows of the rows whose pieces of 16 bytes it copies
 *   copy_x                           such a piece to shared memory
 *   w_row                            where a row of w begins; it has W_PIECES pieces a step, in rows W_PITCH bytes apart
 *   fragments                        a warp's columns of w: from shared memory to what lanes give to the matrix units
 *   x_scale, w_scale                 the end of a segment
 *   line                             a row of y, and what stores a column of it
 */
#ifndef HC_CUDA_TILE_H
#define HC_CUDA_TILE_H

#include "cuda/matmul/epilogue.h"

namespace {

enum { STEP = 64, PITCH = 80, PIECES = STEP / 16 };

/* Columns of w that lie as bytes. */
struct columns_of_bytes {
    enum { W_PITCH = PITCH, W_PIECES = PIECES };
    template <int NI> struct fragments {
        template <typename params> HC_DEVICE fragments(const params &, int64_t) {}
        HC_DEVICE void begin(int64_t) {}
        HC_DEVICE void load(uint32_t b[NI * 2], const unsigned char *w, int k) const {
            const int lane = (int)threadIdx.x % 32;
#pragma unroll
            for (int j = 0; j < NI / 2; j++)
                hc_load_matrix_x4(b + j * 4, w + (j * 16 + lane % 8 + lane / 16 * 8) * W_PITCH + k + lane / 8 % 2 * 16);
        }
    };
};

template <bool is_grouped, int BM, int BN, int WM, int WN, int STAGES, template <int> class operands_of> struct tile {
    enum { WARPS_N = BN / WN, THREADS = BM / WM * WARPS_N * 32 };
    enum { MI = WM / 16, NI = WN / 8, X_COPIES = (BM * PIECES + THREADS - 1) / THREADS };
    typedef operands_of<X_COPIES> operands;
    enum { W_PITCH = operands::W_PITCH, W_PIECES = operands::W_PIECES, STAGE_BYTES = BM * PITCH + BN * W_PITCH };
    typedef typename operands::params params;
    enum { W_LINES = THREADS / W_PIECES, W_COPIES = BN / W_LINES };

    /* w: this thread's first pieces of w. */
    static HC_DEVICE void load(const operands &o, const unsigned char *const (&w)[W_COPIES], int step) {
        unsigned char *stage = hc_shared() + step % STAGES * STAGE_BYTES;
        const int thread = (int)threadIdx.x, piece = thread % PIECES * 16, w_piece = thread % W_PIECES * 16;
#pragma unroll
        for (int i = 0; i < X_COPIES; i++) {
            const int line = (thread + i * THREADS) / PIECES;
            if (BM * PIECES % THREADS == 0 || line < BM)
                o.copy_x(stage + line * PITCH + piece, i, (int64_t)step * STEP + piece);
        }
#pragma unroll
        for (int i = 0; i < W_COPIES; i++)
            hc_copy_16(stage + BM * PITCH + (thread / W_PIECES + i * W_LINES) * W_PITCH + w_piece,
                       w[i] + (int64_t)step * (W_PIECES * 16));
    }

    static HC_DEVICE void run(const params &p) {
        const int lane = (int)threadIdx.x % 32, warp = (int)threadIdx.x / 32;
        const int warp_row = warp / WARPS_N * WM, warp_column = warp % WARPS_N * WN;
        const int64_t row = (int64_t)blockIdx.x * BM, column = (int64_t)blockIdx.y * BN;
        const int steps = (int)(p.ld / STEP);
        const operands o(p, row + (int)threadIdx.x / PIECES, THREADS / PIECES);
        const unsigned char *w_from[W_COPIES];
#pragma unroll
        for (int i = 0; i < W_COPIES; i++)
            w_from[i] = (const unsigned char *)o.w_row(column + (int)threadIdx.x / W_PIECES + i * W_LINES) +
                        (int)threadIdx.x % W_PIECES * 16;
        typename operands::template fragments<NI> w(p, column + warp_column);
        int32_t dots[MI][NI][4] = {};
        float sums[MI][NI][4] = {};
        for (int i = 0; i < STAGES - 1; i++) {
            if (i < steps)
                load(o, w_from, i);
            hc_copy_commit();
        }
        int64_t segment = 0, rest = p.length; /* bytes of k until the segment ends */
        for (int step = 0; step < steps; step++) {
            hc_copy_wait<STAGES - 2>();
            hc_barrier();
            if (step + STAGES - 1 < steps)
                load(o, w_from, step + STAGES - 1);
            hc_copy_commit();
            w.begin(step);
            const unsigned char *stage = hc_shared() + step % STAGES * STAGE_BYTES;
#pragma unroll
            for (int k = 0; k < STEP; k += 32) {
                uint32_t a[MI][4], b[NI * 2];
#pragma unroll
                for (int i = 0; i < MI; i++)
                    hc_load_matrix_x4(a[i], stage + (warp_row + i * 16 + lane % 16) * PITCH + k + lane / 16 * 16);
                w.load(b, stage + BM * PITCH + warp_column * W_PITCH, k);
#pragma unroll
                for (int i = 0; i < MI; i++)
#pragma unroll
                    for (int j = 0; j < NI; j++)
                        hc_mma_s8(dots[i][j], a[i], b + j * 2);
                rest -= 32;
                if constexpr (is_grouped) {
                    if (rest > 0 || segment == p.segments)
                        continue;
#pragma unroll
                    for (int i = 0; i < MI; i++)
#pragma unroll
                        for (int r = 0; r < 4; r += 2) {
                            const float x_scale =
                                operands::x_scale(p, row + warp_row + i * 16 + lane / 4 + r / 2 * 8, segment);
#pragma unroll
                            for (int j = 0; j < NI; j++)
#pragma unroll
                                for (int c = 0; c < 2; c++) {
                                    const float scale =
                                        x_scale *
                                        operands::w_scale(p, column + warp_column + j * 8 + lane % 4 * 2 + c, segment);
                                    sums[i][j][r + c] = fmaf(scale, (float)dots[i][j][r + c], sums[i][j][r + c]);
                                    dots[i][j][r + c] = 0;
                                }
                        }
                    rest = p.length;
                    segment++;
                }
            }
        }
        hc_copy_wait<0>();
#pragma unroll
        for (int i = 0; i < MI; i++)
#pragma unroll
            for (int r = 0; r < 4; r += 2) {
                const typename operands::line line(p, row + warp_row + i * 16 + lane / 4 + r / 2 * 8);
#pragma unroll
                for (int j = 0; j < NI; j++)
#pragma unroll
                    for (int c = 0; c < 2; c++)
                        line.template store<is_grouped>(column + warp_column + j * 8 + lane % 4 * 2 + c,
                                                        dots[i][j][r + c], sums[i][j][r + c]);
            }
    }
};

} // namespace

#endif
