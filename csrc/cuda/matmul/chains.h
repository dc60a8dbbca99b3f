/* A tile of a float matmul: a block computes ROWS x COLUMNS values of y, each one chain of fma over k, ascending.
 *
 * Both sides arrive in shared memory K columns at a time, in pieces of 16 bytes with a gap behind each row, so that eight rows touch
 * all banks. A thread has TR x TC values of y, rows LR apart and columns 32 / LR apart, and reads OF_K columns at a time. Shared memory
 * passes 128 bytes a clock to all lanes, equal ones too, which limits tiles of few values a thread. `sides`:
 *
 *   steps_of_k           the length of a chain
 *   x<N, TURN>, w        a thread's N rows, TURN apart: copy(to, i, k) brings four columns of row i, zeros beyond the last
 *   is_valid             false of a value of w that chains skip
 *   store                values of y, from shared memory, where row i is row i / SPAN * APART + i % SPAN of y
 */
#ifndef HC_CUDA_CHAINS_H
#define HC_CUDA_CHAINS_H

#include "cuda/codec.h"

namespace {

template <int GIVEN_ROWS, int GIVEN_COLUMNS, int TR, int TC, int LR, int GIVEN_K, int STAGES, int OF_K, typename sides>
struct chains {
    enum { ROWS = GIVEN_ROWS, COLUMNS = GIVEN_COLUMNS, K = GIVEN_K, LC = 32 / LR, PIECES = K / 4 };
    enum { LD = (K + 4) * 4 /* bytes */, LD_Y = COLUMNS + 8 /* floats */ };
    enum { WARP_ROWS = LR * TR, WARP_COLUMNS = LC * TC, THREADS = ROWS / TR * (COLUMNS / TC) };
    enum { X_BYTES = ROWS * LD, STAGE_BYTES = (ROWS + COLUMNS) * LD, TURN = THREADS / PIECES };
    enum { TURNS = TR * TC < 64 ? 1 : K /* where most of the code is fma, it is in a row */ };
    enum { X_COPIES = ROWS / TURN, W_COPIES = COLUMNS / TURN };
    /* Values of y pass through shared memory in this many parts, rows of each warp. */
    enum { PARTS = ROWS * LD_Y * 4 > STAGES *STAGE_BYTES ? 2 : 1, SPAN = WARP_ROWS / PARTS };
    static_assert(ROWS % TURN == 0 && COLUMNS % TURN == 0 && K % (2 * OF_K) == 0);

    /* OF_K columns of a thread's rows, from shared memory. */
    struct fragment {
        alignas(4 * OF_K) float x[TR][OF_K], w[TC][OF_K];

        HC_DEVICE void load(const unsigned char *x_from, const unsigned char *w_from) {
#pragma unroll
            for (int i = 0; i < TR; i++)
                memcpy(x[i], __builtin_assume_aligned(x_from + i * LR * LD, 4 * OF_K), 4 * OF_K);
#pragma unroll
            for (int j = 0; j < TC; j++)
                memcpy(w[j], __builtin_assume_aligned(w_from + j * LC * LD, 4 * OF_K), 4 * OF_K);
        }
        HC_DEVICE void add(float (&sums)[TR][TC]) const {
#pragma unroll
            for (int j = 0; j < TC; j++)
#pragma unroll
                for (int s = 0; s < OF_K; s++)
#pragma unroll
                    for (int i = 0; i < TR; i++)
                        if (sides::is_valid(w[j][s]))
                            sums[i][j] = fmaf(x[i][s], w[j][s], sums[i][j]);
        }
    };

    static HC_DEVICE void run(const typename sides::params &p) {
        const int thread = (int)threadIdx.x, lane = thread % HC_WARP, warp = thread / HC_WARP;
        const int warp_row = warp / (COLUMNS / WARP_COLUMNS), row = warp_row * WARP_ROWS + lane / LC;
        const int column = warp % (COLUMNS / WARP_COLUMNS) * WARP_COLUMNS + lane % LC;
        const int64_t x_first = (int64_t)blockIdx.x * ROWS, w_first = (int64_t)blockIdx.y * COLUMNS;
        const int own = thread / PIECES, piece = thread % PIECES, own_place = own * LD + piece * 16;
        const int k_all = (int)sides::steps_of_k(p);
        const typename sides::template x<X_COPIES, TURN> x_rows(p, x_first, own);
        const typename sides::template w<W_COPIES, TURN> w_rows(p, w_first, own);
        const auto fetch = [&](int k, int stage) {
            unsigned char *to = hc_shared() + stage * STAGE_BYTES + own_place;
            if (k < k_all) {
#pragma unroll
                for (int i = 0; i < X_COPIES; i++)
                    x_rows.copy(to + i * TURN * LD, i, k + piece * 4);
#pragma unroll
                for (int i = 0; i < W_COPIES; i++)
                    w_rows.copy(to + X_BYTES + i * TURN * LD, i, k + piece * 4);
            }
            hc_copy_commit();
        };
        HC_SHORT_LOOP
        for (int i = 0; i < STAGES - 1; i++)
            fetch(i * K, i);
        float sums[TR][TC] = {};
        fragment even, odd; /* one of them is on its way while the other is multiplied */
        const unsigned char *x_own = hc_shared() + row * LD, *w_own = hc_shared() + X_BYTES + column * LD;
        hc_copy_wait<STAGES - 2>();
        hc_barrier();
        even.load(x_own, w_own);
        int stage = 0, k = 0;
        for (; k_all - k >= K; k += K) {
            fetch(k + (STAGES - 1) * K, stage == 0 ? STAGES - 1 : stage - 1);
            int at = stage * STAGE_BYTES;
            stage = stage + 1 == STAGES ? 0 : stage + 1;
#pragma unroll TURNS
            for (int s = 2 * OF_K; s < K; s += 2 * OF_K) {
                odd.load(x_own + at + OF_K * 4, w_own + at + OF_K * 4);
                even.add(sums);
                at += 2 * OF_K * 4;
                even.load(x_own + at, w_own + at);
                odd.add(sums);
            }
            odd.load(x_own + at + OF_K * 4, w_own + at + OF_K * 4);
            even.add(sums);
            hc_copy_wait<STAGES - 2>();
            hc_barrier(); /* all of this stage is in registers, and the next one has arrived */
            even.load(x_own + stage * STAGE_BYTES, w_own + stage * STAGE_BYTES);
            odd.add(sums);
        }
        HC_SHORT_LOOP
        for (int s = 0; s < k_all - k; s++) { /* a zero more would change the sign of a zero */
            const int at = stage * STAGE_BYTES + s * 4;
            float x[TR];
#pragma unroll
            for (int i = 0; i < TR; i++)
                x[i] = *(const float *)(x_own + at + i * LR * LD);
#pragma unroll
            for (int j = 0; j < TC; j++) {
                const float w = *(const float *)(w_own + at + j * LC * LD);
#pragma unroll
                for (int i = 0; i < TR; i++)
                    if (sides::is_valid(w))
                        sums[i][j] = fmaf(x[i], w, sums[i][j]);
            }
        }
        hc_copy_wait<0>();
        float *y = (float *)hc_shared();
#pragma unroll
        for (int part = 0; part < PARTS; part++) {
            hc_barrier();
#pragma unroll
            for (int i = 0; i < TR / PARTS; i++)
#pragma unroll
                for (int j = 0; j < TC; j++)
                    y[(warp_row * SPAN + lane / LC + i * LR) * LD_Y + column + j * LC] =
                        sums[part * (TR / PARTS) + i][j];
            hc_barrier();
            sides::template store<ROWS / PARTS, COLUMNS, THREADS, LD_Y, SPAN, WARP_ROWS>(p, x_first + part * SPAN,
                                                                                         w_first, y);
        }
    }
};

} // namespace

#endif
