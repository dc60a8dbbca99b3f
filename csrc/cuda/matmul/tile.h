/* A tile of an integer matmul, exact within a segment (epilogue.h): a block computes BM x BN, each of its warps WM x WN.
 *
 * Both sides arrive in shared memory 64 bytes of k at a time, some steps ahead, in rows of pieces of 16 bytes (swizzle.h). Offsets of
 * rows fit 32 bits. `operands` says where rows lie and what becomes of sums:
 *
 *   operands(p, row)     what a thread knows of the rows whose pieces it copies; the first of the block is `row`
 *   copy                 its piece of one of these rows of x to shared memory
 *   w_of                 the rows of w, which have W_PIECES pieces a step
 *   fragments            a warp's columns of w: from shared memory to what lanes give to the matrix units
 *   x_scales, w_scales   scales of a lane's rows and columns, segment by segment
 *   line                 a row of y, and what stores a column of it
 */
#ifndef HC_CUDA_TILE_H
#define HC_CUDA_TILE_H

#include "cuda/matmul/epilogue.h"
#include "cuda/matmul/swizzle.h"

namespace {

enum { STEP = 64, PIECES = STEP / 16 };

/* N rows of a block as offsets from its first row. A row beyond the last is the last again, and its sums are not stored. */
template <int N> struct row_offsets {
    uint32_t at[N];

    /* first: the block's. row(i): those of this thread, behind it. */
    template <typename row_of> HC_DEVICE row_offsets(int64_t first, int64_t n, int64_t stride, const row_of &row) {
#pragma unroll
        for (int i = 0; i < N; i++)
            at[i] = hc_held((uint32_t)(hc_min(first + row(i), n - 1) - first) * (uint32_t)stride);
    }
};

/* All rows of w, bytes apart. */
struct rows_of_w {
    const unsigned char *from;
    int64_t n, stride;
};

/* Scales of N rows, a float for each segment. */
template <int N> struct scales_of {
    const float *from; /* of the segment, for all threads */
    const row_offsets<N> rows;

    /* stride: floats from row to row */
    template <typename row_of>
    HC_DEVICE scales_of(const float *scales, int64_t first, int64_t n, int64_t stride, const row_of &row)
        : from(scales + first * stride), rows(first, n, stride, row) {}
    HC_DEVICE float at(int i) const { return from[rows.at[i]]; }
    HC_DEVICE void next() { from++; }
};

/* The rows of a matrix unit that a lane has sums of, and its columns: two of each 16, and two of each 8. */
static inline HC_DEVICE int sum_row(int i) { return i / 2 * 16 + hc_lane() / 4 + i % 2 * 8; }
static inline HC_DEVICE int sum_column(int i) { return i / 2 * 8 + (int)threadIdx.x % 4 * 2 + i % 2; }

/* Columns of w that lie as bytes. */
struct columns_of_bytes {
    enum { W_PIECES = PIECES };
    template <int NI> struct fragments {
        const int own;
        template <typename params>
        HC_DEVICE fragments(const params &, int64_t)
            : own(hc_piece_place<PIECES>((int)threadIdx.x % 8 + hc_lane() / 16 * 8, (int)threadIdx.x / 8 % 2)) {}
        HC_DEVICE void begin(int64_t) {}
        HC_DEVICE void load(uint32_t b[NI * 2], const unsigned char *w, int k) const {
#pragma unroll
            for (int j = 0; j < NI / 2; j++)
                hc_load_matrix_x4(b + j * 4, w + j * 16 * STEP + (own ^ k));
        }
    };
};

/* N rows of x of a block as they lie, and the scales and sums of such rows. Rows beyond the last are zeros: reading them costs as much
 * of the cache as reading others. */
template <int N, typename params> struct rows_of_bytes {
    const int8_t *const x;
    const row_offsets<N> from;

    bool has[N];

    static HC_DEVICE int own(int i) { return (int)(threadIdx.x / PIECES + i * (blockDim.x / PIECES)); }
    HC_DEVICE rows_of_bytes(const params &p, int64_t first)
        : x(p.x + first * p.ld), from(first, p.m, p.ld, [](int i) { return own(i); }) {
#pragma unroll
        for (int i = 0; i < N; i++)
            has[i] = first + own(i) < p.m;
    }
    HC_DEVICE void copy(void *to, int i, int step) const {
        hc_copy_16_or_zeros(to, x + (int64_t)step * STEP + (from.at[i] + threadIdx.x % PIECES * 16), has[i]);
    }
    template <int ROWS> struct x_scales : scales_of<ROWS> {
        HC_DEVICE x_scales(const params &p, int64_t first, int own)
            : scales_of<ROWS>(p.x_scales, first, p.m, p.segments, [=](int i) { return own + sum_row(i); }) {}
    };
    typedef line_of<params> line;
};

template <bool is_grouped, int BM, int BN, int WM, int WN, int STAGES, template <int> class operands_of> struct tile {
    enum { WARPS_N = BN / WN, THREADS = BM / WM * WARPS_N * HC_WARP };
    enum { MI = WM / 16, NI = WN / 8, X_COPIES = (BM * PIECES + THREADS - 1) / THREADS };
    typedef operands_of<X_COPIES> operands;
    enum { W_PIECES = operands::W_PIECES, W_STEP = W_PIECES * 16, STAGE_BYTES = BM * STEP + BN * W_STEP };
    typedef typename operands::params params;
    enum { X_LINES = THREADS / PIECES, W_LINES = THREADS / W_PIECES, W_COPIES = BN / W_LINES };
    static_assert(X_LINES % 8 == 0 && W_LINES % 8 == 0, "a thread's pieces are at the same place of their rows");

    /* A thread's pieces of a step. */
    struct pieces {
        const operands x;
        const unsigned char *const w; /* the first row of the block */
        const row_offsets<W_COPIES> w_from;
        const int x_to, w_to;

        HC_DEVICE pieces(const params &p, int64_t row, int64_t column) : pieces(p, row, column, operands::w_of(p)) {}
        HC_DEVICE pieces(const params &p, int64_t row, int64_t column, const rows_of_w &all)
            : x(p, row), w(all.from + column * all.stride),
              w_from(column, all.n, all.stride, [](int i) { return (int)threadIdx.x / W_PIECES + i * W_LINES; }),
              x_to(hc_piece_place<PIECES>((int)threadIdx.x / PIECES, (int)threadIdx.x % PIECES)),
              w_to(BM * STEP + hc_piece_place<W_PIECES>((int)threadIdx.x / W_PIECES, (int)threadIdx.x % W_PIECES)) {}
        HC_DEVICE void load(int at, int step) const {
            unsigned char *stage = hc_shared() + at;
#pragma unroll
            for (int i = 0; i < X_COPIES; i++)
                if (BM % X_LINES == 0 || (int)threadIdx.x / PIECES + i * X_LINES < BM)
                    x.copy(stage + x_to + i * (X_LINES * STEP), i, step);
#pragma unroll
            for (int i = 0; i < W_COPIES; i++)
                hc_copy_16(stage + w_to + i * (W_LINES * W_STEP),
                           w + (int64_t)step * W_STEP + (w_from.at[i] + threadIdx.x % W_PIECES * 16));
        }
    };
    static HC_DEVICE int next(int at) { return at == (STAGES - 1) * STAGE_BYTES ? 0 : at + STAGE_BYTES; }

    static HC_DEVICE void run(const params &p) {
        const int lane = hc_lane(), warp = hc_warp();
        const int warp_row = warp / WARPS_N * WM, warp_column = warp % WARPS_N * WN;
        const int64_t row = (int64_t)blockIdx.x * BM, column = (int64_t)blockIdx.y * BN;
        const int steps = (int)(p.ld / STEP);
        const int x_own = hc_piece_place<PIECES>(lane % 16, lane / 16);
        const pieces own(p, row, column);
        typename operands::template fragments<NI> w(p, column + warp_column);
        typename operands::template x_scales<is_grouped ? MI * 2 : 1> x_scales(p, row, warp_row);
        typename operands::template w_scales<is_grouped ? NI * 2 : 1> w_scales(p, column, warp_column);
        int32_t dots[MI][NI][4] = {};
        float sums[MI][NI][4] = {};
        for (int i = 0; i < STAGES - 1; i++) {
            if (i < steps)
                own.load(i * STAGE_BYTES, i);
            hc_copy_commit();
        }
        int at = 0, last = (STAGES - 1) *
                           STAGE_BYTES; /* the stage that is read next, and the one before it, which is free then */
        int rest = p.length,
            segments = (int)p.segments; /* bytes of k until the segment ends; segments that have not ended */
        for (int step = 0; step < steps; step++) {
            hc_copy_wait<STAGES - 2>();
            hc_barrier();
            if (step + STAGES - 1 < steps)
                own.load(last, step + STAGES - 1);
            hc_copy_commit();
            w.begin(step);
            const unsigned char *stage = hc_shared() + at;
            last = at, at = next(at);
#pragma unroll
            for (int k = 0; k < STEP; k += 32) {
                uint32_t a[MI][4], b[NI * 2];
#pragma unroll
                for (int i = 0; i < MI; i++)
                    hc_load_matrix_x4(a[i], stage + (warp_row + i * 16) * STEP + (x_own ^ k));
                w.load(b, stage + BM * STEP + warp_column * W_STEP, k);
#pragma unroll
                for (int i = 0; i < MI; i++)
#pragma unroll
                    for (int j = 0; j < NI; j++)
                        hc_mma_s8(dots[i][j], a[i], b + j * 2);
                rest -= 32;
                if constexpr (is_grouped) {
                    if (rest > 0 || segments == 0)
                        continue;
#pragma unroll
                    for (int i = 0; i < MI * 2; i++) {
                        const float x_scale = x_scales.at(i);
#pragma unroll
                        for (int j = 0; j < NI * 2; j++) {
                            int32_t &dot = dots[i / 2][j / 2][i % 2 * 2 + j % 2];
                            float &sum = sums[i / 2][j / 2][i % 2 * 2 + j % 2];
                            sum = fmaf(x_scale * w_scales.at(j), (float)dot, sum);
                            dot = 0;
                        }
                    }
                    rest = p.length;
                    segments--;
                    x_scales.next();
                    w_scales.next();
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
