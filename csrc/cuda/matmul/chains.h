/* A tile of a float matmul: a block computes ROWS x COLUMNS values of y, each one chain of fma over k, ascending.
 *
 * Both sides arrive in shared memory K columns at a time, some steps ahead, in pieces of 16 bytes. A gap of one piece follows each
 * row, so that eight rows touch all banks. A thread has TR x TC values of y. Its rows are LR apart and its columns 32 / LR apart, so
 * that a warp reads neighbouring rows of shared memory.
 * `sides` says where operands and results are:
 *
 *   sides(p)             of the block
 *   steps_of_k           the length of a chain
 *   has_pieces           four columns from a multiple of four on may be copied at once, in both sides
 *   x<N, TURN>, w        a thread's N rows, TURN apart: copy(to, i, k) brings four columns of row i, zeros beyond the last;
 *                        value(i, k) is one of them
 *   is_there             false of a value of w that chains skip
 *   store                values of y, from shared memory
 */
#ifndef HC_CUDA_CHAINS_H
#define HC_CUDA_CHAINS_H

#include "cuda/codec.h"

namespace {

template <int GIVEN_ROWS, int GIVEN_COLUMNS, int TR, int TC, int LR, int GIVEN_K, int STAGES, typename sides>
struct chains {
    enum { ROWS = GIVEN_ROWS, COLUMNS = GIVEN_COLUMNS, K = GIVEN_K, LC = 32 / LR, PIECES = K / 4 };
    enum { LD = (K + 4) * 4 /* bytes */ };
    enum { WARP_ROWS = LR * TR, WARP_COLUMNS = LC * TC, THREADS = ROWS / TR * (COLUMNS / TC) };
    enum { X_BYTES = ROWS * LD, STAGE_BYTES = (ROWS + COLUMNS) * LD, TURN = THREADS / PIECES };
    enum { X_COPIES = ROWS / TURN, W_COPIES = COLUMNS / TURN, LD_Y = COLUMNS + 8 /* floats */ };
    enum { AT_ONCE = 256 / (TR * TC * 4) /* pieces: code of 256 fma */ };
    static_assert(ROWS % TURN == 0 && COLUMNS % TURN == 0);

    static HC_DEVICE void run(const typename sides::params &p) {
        const int thread = (int)threadIdx.x, lane = thread % 32, warp = thread / 32;
        const int row = warp / (COLUMNS / WARP_COLUMNS) * WARP_ROWS + lane / LC;
        const int column = warp % (COLUMNS / WARP_COLUMNS) * WARP_COLUMNS + lane % LC;
        const int64_t x_first = (int64_t)blockIdx.x * ROWS, w_first = (int64_t)blockIdx.y * COLUMNS;
        const int own = thread / PIECES, piece = thread % PIECES, own_place = own * LD + piece * 16,
                  k_all = (int)sides::steps_of_k(p);
        const typename sides::template x<X_COPIES, TURN> x_rows(p, x_first, own);
        const typename sides::template w<W_COPIES, TURN> w_rows(p, w_first, own);
        const auto fetch = [&](int k, int stage) {
            unsigned char *to = hc_shared() + stage * STAGE_BYTES + own_place;
            if (k < k_all) {
                if (sides::has_pieces(p)) {
#pragma unroll
                    for (int i = 0; i < X_COPIES; i++)
                        x_rows.copy(to + i * TURN * LD, i, k + piece * 4);
#pragma unroll
                    for (int i = 0; i < W_COPIES; i++)
                        w_rows.copy(to + X_BYTES + i * TURN * LD, i, k + piece * 4);
                } else {
#pragma unroll
                    for (int i = 0; i < X_COPIES; i++)
                        HC_SHORT_LOOP
                        for (int c = 0; c < 4; c++)
                            ((float *)(to + i * TURN * LD))[c] = x_rows.value(i, k + piece * 4 + c);
#pragma unroll
                    for (int i = 0; i < W_COPIES; i++)
                        HC_SHORT_LOOP
                        for (int c = 0; c < 4; c++)
                            ((float *)(to + X_BYTES + i * TURN * LD))[c] = w_rows.value(i, k + piece * 4 + c);
                }
            }
            hc_copy_commit();
        };
        const int x_own = row * LD, w_own = X_BYTES + column * LD;
        float sums[TR][TC] = {};
        HC_SHORT_LOOP
        for (int i = 0; i < STAGES - 1; i++)
            fetch(i * K, i);
        int at = 0, next = STAGES - 1;
        for (int k = 0; k < k_all; k += K) {
            hc_copy_wait<STAGES - 2>();
            hc_barrier();
            fetch(k + (STAGES - 1) * K, next);
            const unsigned char *stage = hc_shared() + at * STAGE_BYTES;
            at = at + 1 == STAGES ? 0 : at + 1;
            next = next + 1 == STAGES ? 0 : next + 1;
            if (k_all - k < K) {
                HC_SHORT_LOOP
                for (int s = 0; s < k_all - k; s++) { /* a zero more would change the sign of a zero */
                    float x[TR];
#pragma unroll
                    for (int i = 0; i < TR; i++)
                        x[i] = *(const float *)(stage + x_own + i * LR * LD + s * 4);
#pragma unroll
                    for (int j = 0; j < TC; j++) {
                        const float w = *(const float *)(stage + w_own + j * LC * LD + s * 4);
#pragma unroll
                        for (int i = 0; i < TR; i++)
                            if (sides::is_there(w))
                                sums[i][j] = fmaf(x[i], w, sums[i][j]);
                    }
                }
                break;
            }
#pragma unroll AT_ONCE
            for (int c = 0; c < PIECES; c++) {
                alignas(16) float x[TR][4];
#pragma unroll
                for (int i = 0; i < TR; i++)
                    memcpy(x[i], __builtin_assume_aligned(stage + x_own + i * LR * LD + c * 16, 16), 16);
#pragma unroll
                for (int j = 0; j < TC; j++) {
                    alignas(16) float w[4];
                    memcpy(w, __builtin_assume_aligned(stage + w_own + j * LC * LD + c * 16, 16), 16);
#pragma unroll
                    for (int s = 0; s < 4; s++)
#pragma unroll
                        for (int i = 0; i < TR; i++)
                            if (sides::is_there(w[s]))
                                sums[i][j] = fmaf(x[i][s], w[s], sums[i][j]);
                }
            }
        }
        hc_copy_wait<0>();
        hc_barrier();
        float *y = (float *)hc_shared();
#pragma unroll
        for (int i = 0; i < TR; i++)
#pragma unroll
            for (int j = 0; j < TC; j++)
                y[(row + i * LR) * LD_Y + column + j * LC] = sums[i][j];
        hc_barrier();
        sides::template store<ROWS, COLUMNS, THREADS, LD_Y>(p, x_first, w_first, y);
    }
};

} // namespace

#endif
