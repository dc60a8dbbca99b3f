/* Integer matmul of many rows with weights in a 2:4 pattern on the matrix units of a warpgroup: y^T = w x^T, sparse_24.cu with other
 * instructions.
 *
 * A stage is 128 columns of k: 64 kept bytes a row of w, 128 bytes a row of x, in swizzled atoms (wgmma.h). The places of two
 * stages are 32 bytes of a row, which are copied at once, behind all stages.
 */
#include "cuda/matmul/epilogue.h"
#include "cuda/matmul/places.h"
#include "cuda/matmul/wgmma.h"

namespace {

enum { STEP = HC_ATOM_PITCH, W_PITCH = STEP / 2, PLACES_PITCH = STEP / 4 };

/* A thread's pieces of 16 bytes of LINES rows, PIECES of them a row and stage, at the same k. A row beyond the last is the last again,
 * and its sums are not stored. Bytes of a block are at offsets of 32 bits. */
template <int LINES, int PIECES, int THREADS> struct pieces {
    enum { EACH = THREADS / PIECES, COPIES = LINES / EACH };
    static_assert(LINES % EACH == 0 && EACH % 8 == 0, "a thread's pieces are at the same place of their rows");
    const char *const from; /* of the block's first row, for all threads */
    uint32_t offset[COPIES];

    static HC_DEVICE int piece() { return (int)threadIdx.x % PIECES; }
    static HC_DEVICE int line() { return (int)threadIdx.x / PIECES; }
    HC_DEVICE pieces(const void *rows, int64_t first, int64_t n, int64_t pitch)
        : from((const char *)rows + first * pitch) {
#pragma unroll
        for (int i = 0; i < COPIES; i++)
            offset[i] = hc_held(hc_row_for(line() + i * EACH, n - first) * (uint32_t)pitch + (uint32_t)piece() * 16);
    }
    HC_DEVICE const char *at(int i, int step) const { return from + (offset[i] + (uint32_t)step * (PIECES * 16)); }
    static HC_DEVICE unsigned char *place(unsigned char *to, int i) {
        return to + hc_piece_place<PIECES>(line(), piece()) + i * (EACH * PIECES * 16);
    }
    /* Those of a stage, to their places in rows of PIECES. */
    HC_DEVICE void load(unsigned char *to, int step) const {
#pragma unroll
        for (int i = 0; i < COPIES; i++)
            hc_copy_16(place(to, i), at(i, step));
    }
    /* The same, with zeros behind a row's last byte. */
    HC_DEVICE void load_or_zeros(unsigned char *to, int step, int row_bytes) const {
        const bool is_valid = (step * PIECES + piece()) * 16 < row_bytes;
#pragma unroll
        for (int i = 0; i < COPIES; i++)
            hc_copy_16_or_zeros(place(to, i), is_valid ? at(i, step) : from, is_valid);
    }
};

/* A block computes W_ROWS rows of w times X_ROWS rows of x, each of its warpgroups 64 x X_ROWS. */
template <int GROUPS, int X_ROWS, int STAGES> struct tile {
    enum { THREADS = GROUPS * 128, W_ROWS = GROUPS * 64, SUMS = X_ROWS / 2, PRODUCTS = STEP / 64 };
    enum { X_AT = W_ROWS * W_PITCH, STAGE_BYTES = X_AT + X_ROWS * STEP };
    enum { AHEAD = STAGES - 2 /* one is read, and products of another one may run */ };
    enum { SLOTS = (STAGES + 1) / 2, PLACES_AT = STAGES * STAGE_BYTES, SLOT_BYTES = W_ROWS * PLACES_PITCH };
    enum { X_SCALES_AT = PLACES_AT + SLOTS * SLOT_BYTES };
    /* y of some rows of x in shared memory, in place of stages; four floats between rows, so that lanes touch all banks */
    enum {
        TURNED = X_ROWS < 64 ? X_ROWS : 64,
        PITCH = W_ROWS + 4,
        Y_PIECES = W_ROWS / 4,
        Y_LINES = THREADS / Y_PIECES
    };
    static_assert(2 * TURNED * PITCH * 4 <= PLACES_AT && X_ROWS <= THREADS && TURNED % Y_LINES == 0, "");

    const hc_cuda_gemm_24 &p;
    const pieces<W_ROWS, W_PITCH / 16, THREADS> w;
    const pieces<X_ROWS, STEP / 16, THREADS> x;
    const pieces<W_ROWS, PLACES_PITCH / 16, THREADS> places;
    const int lane, own, own_places; /* own: the first of the two rows of w that this thread has sums of */

    HC_DEVICE tile(const hc_cuda_gemm_24 &given)
        : p(given), w(p.gemm.w, w_row(), p.gemm.n, p.gemm.ld / 2), x(p.gemm.x, x_row(), p.gemm.m, p.gemm.ld),
          places(p.metadata, w_row(), p.gemm.n, p.gemm.ld / 8), lane(hc_lane()), own(hc_warp() * 16 + lane / 4),
          own_places(hc_piece_place<PLACES_PITCH / 16>(own + lane % 2 * 8, 0) + lane / 2 % 2 * 4) {}

    /* A step, and where its bytes lie. */
    struct cursor {
        int step = 0, stage = 0, slot = PLACES_AT;

        HC_DEVICE void next() {
            stage = stage + STAGE_BYTES == PLACES_AT ? 0 : stage + STAGE_BYTES;
            if (++step % 2 == 0)
                slot = slot + SLOT_BYTES == X_SCALES_AT ? (int)PLACES_AT : slot + SLOT_BYTES;
        }
    };
    static HC_DEVICE int64_t x_row() { return (int64_t)blockIdx.x * X_ROWS; }
    static HC_DEVICE int64_t w_row() { return (int64_t)blockIdx.y * W_ROWS; }
    static HC_DEVICE float *x_scales() { return (float *)(hc_shared() + X_SCALES_AT); }
    HC_DEVICE void load(cursor &to, int steps) const {
        if (to.step < steps) {
            w.load(hc_shared() + to.stage, to.step);
            x.load(hc_shared() + to.stage + X_AT, to.step);
            if (to.step % 2 == 0)
                places.load_or_zeros(hc_shared() + to.slot, to.step / 2, (int)p.gemm.ld / 8);
            to.next();
        }
        hc_copy_commit();
    }
    /* The products of a step whose stage has arrived; kept: the places of the step before the last, whose products ended. */
    HC_DEVICE void multiply(int32_t (&dots)[SUMS], uint32_t (&kept)[PRODUCTS], cursor &at, cursor &to, int steps,
                            uint32_t none) const {
        hc_fence_shared();
        hc_barrier();
        const unsigned char *stage = hc_shared() + at.stage;
        const unsigned char *slot = hc_shared() + at.slot + (own_places ^ at.step % 2 * 16);
        const uint64_t a = hc_descriptor_64(hc_shared_address(stage + threadIdx.x / 128 * (64 * W_PITCH)));
        const uint64_t b = hc_descriptor(hc_shared_address(stage + X_AT));
#pragma unroll
        for (int k = 0; k < PRODUCTS; k++)
            kept[k] = hc_wgmma_replace(kept[k], hc_legal_places(*(const uint32_t *)(slot + k * 8)), none);
        hc_wgmma_fence();
#pragma unroll
        for (int k = 0; k < PRODUCTS; k++)
            hc_wgmma_sparse_s8(dots, a + k * 2, b + k * 4, kept[k]);
        hc_wgmma_commit();
        load(to, steps); /* into a stage whose products ended for all before the barrier */
        hc_copy_wait<AHEAD - 1>();
        hc_wgmma_wait<1>(dots);
        at.next();
    }
    HC_DEVICE void run() const {
        const int steps = (int)(p.gemm.ld / STEP);
        const uint32_t none = (uint32_t)(p.gemm.length >> 31);
        int32_t dots[SUMS] = {};
        uint32_t kept[2][PRODUCTS] = {}; /* of even and of odd steps */
        cursor at, to;
        if (threadIdx.x < X_ROWS)
            x_scales()[threadIdx.x] = x_scale(p.gemm, x_row() + threadIdx.x, 0);
        for (int i = 0; i < AHEAD; i++)
            load(to, steps);
        hc_copy_wait<AHEAD - 1>();
        while (at.step < steps) {
            multiply(dots, kept[0], at, to, steps, none);
            if (at.step < steps)
                multiply(dots, kept[1], at, to, steps, none);
        }
        hc_wgmma_wait<0>(dots);
        hc_copy_wait<0>();
        hc_barrier();
        store(dots, kept, none);
    }
    /* A thread's sums have two rows of w and X_ROWS of x; shared memory turns y, so that lanes store neighbours. */
    HC_DEVICE void store(const int32_t (&dots)[SUMS], const uint32_t (&kept)[2][PRODUCTS], uint32_t none) const {
        const hc_cuda_gemm &g = p.gemm;
        const bool has_pieces = g.y_column == sizeof(float) && ((uintptr_t)g.y | (uintptr_t)g.y_row) % 16 == 0;
        float bias[2];
        double w_scales[2];
#pragma unroll
        for (int r = 0; r < 2; r++) {
            const int64_t row = hc_min(w_row() + own + r * 8, g.n - 1);
            w_scales[r] = (double)folded_scale(g, row);
            bias[r] = g.bias ? g.bias[row] : 0;
        }
#pragma unroll
        for (int first = 0; first < X_ROWS; first += TURNED) {
            /* by turns in two places, so that a barrier suffices */
            float *turned = (float *)hc_shared() + first / TURNED % 2 * (TURNED * PITCH);
#pragma unroll
            for (int i = first / 2; i < (first + TURNED) / 2; i += 4)
#pragma unroll
                for (int c = 0; c < 2; c++) {
                    const int row = i * 2 + lane % 4 * 2 + c;
                    const int number = i / 2 + c; /* of the scale */
                    uint32_t bits = hc_f32_bits(x_scales()[row]);
                    if (number < 2 * PRODUCTS) /* the last products' places, too, are read until the wait */
                        bits = hc_wgmma_replace(kept[number / PRODUCTS][number % PRODUCTS], bits, none);
                    const double scale = (double)hc_f32_from_bits(bits);
#pragma unroll
                    for (int r = 0; r < 2; r++) {
                        const float y = finished<false>(scale * w_scales[r], dots[i + r * 2 + c], 0);
                        turned[(row - first) * PITCH + own + r * 8] = g.bias ? y + bias[r] : y;
                    }
                }
            hc_barrier();
            const int piece = (int)threadIdx.x % Y_PIECES, line = (int)threadIdx.x / Y_PIECES;
            const int64_t column = w_row() + piece * 4;
#pragma unroll
            for (int i = 0; i < TURNED; i += Y_LINES) {
                const int64_t row = x_row() + first + line + i;
                const float *from = turned + (line + i) * PITCH + piece * 4;
                char *to = g.y + row * g.y_row + column * g.y_column;
                if (row >= g.m)
                    continue;
                if (has_pieces && column + 3 < g.n)
                    memcpy(__builtin_assume_aligned(to, 16), __builtin_assume_aligned(from, 16), 16);
                else
                    for (int c = 0; c < 4; c++)
                        if (column + c < g.n)
                            *(float *)(to + c * g.y_column) = from[c];
            }
        }
    }
};

} // namespace

HC_KERNEL(hc_gemm_90a_24_64x64_folded, hc_cuda_gemm_24, 128) { tile<1, 64, 12>(p).run(); }
HC_KERNEL(hc_gemm_90a_24_64x128_folded, hc_cuda_gemm_24, 128) { tile<1, 128, 8>(p).run(); }
HC_KERNEL(hc_gemm_90a_24_128x128_folded, hc_cuda_gemm_24, 256) { tile<2, 128, 7>(p).run(); }
HC_KERNEL(hc_gemm_90a_24_256x128_folded, hc_cuda_gemm_24, 512) { tile<4, 128, 6>(p).run(); }
HC_KERNEL(hc_gemm_90a_24_256x192_folded, hc_cuda_gemm_24, 512) { tile<4, 192, 5>(p).run(); }
