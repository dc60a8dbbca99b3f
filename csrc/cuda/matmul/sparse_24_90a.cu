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
 * and its sums are not stored. Steps between rows fit 32 bits. */
template <int LINES, int PIECES, int THREADS> struct pieces {
    enum { EACH = THREADS / PIECES, COPIES = LINES / EACH };
    static_assert(LINES % EACH == 0 && EACH % 8 == 0, "a thread's pieces are at the same place of their rows");
    const char *from;
    uint32_t offset[COPIES];

    static HC_DEVICE int piece() { return (int)threadIdx.x % PIECES; }
    static HC_DEVICE int line() { return (int)threadIdx.x / PIECES; }
    HC_DEVICE pieces(const void *rows, int64_t first, int64_t n, int64_t pitch) {
        const int64_t own = hc_min(first + line(), n - 1);
        from = (const char *)rows + own * pitch + piece() * 16;
#pragma unroll
        for (int i = 0; i < COPIES; i++)
            offset[i] = (uint32_t)(hc_min(own + i * EACH, n - 1) - own) * (uint32_t)pitch;
    }
    /* Those of a stage, to their places in rows of PIECES. */
    HC_DEVICE void load(unsigned char *to, int step) const {
        unsigned char *own = to + hc_piece_place<PIECES>(line(), piece());
#pragma unroll
        for (int i = 0; i < COPIES; i++)
            hc_copy_16(own + i * (EACH * PIECES * 16), from + (int64_t)step * (PIECES * 16) + offset[i]);
    }
    /* The same, with zeros behind a row's last byte. */
    HC_DEVICE void load_or_zeros(unsigned char *to, int step, int64_t row_bytes) const {
        unsigned char *own = to + hc_piece_place<PIECES>(line(), piece());
        const int64_t at = (int64_t)step * (PIECES * 16);
        const bool is_there = at + piece() * 16 < row_bytes;
#pragma unroll
        for (int i = 0; i < COPIES; i++)
            hc_copy_16_or_zeros(own + i * (EACH * PIECES * 16), (is_there ? from + at : from) + offset[i], is_there);
    }
};

/* A block computes W_ROWS rows of w times X_ROWS rows of x, each of its warpgroups 64 x X_ROWS. */
template <int GROUPS, int X_ROWS, int STAGES> struct tile {
    enum { THREADS = GROUPS * 128, W_ROWS = GROUPS * 64, SUMS = X_ROWS / 2 };
    enum { X_AT = W_ROWS * W_PITCH, STAGE_BYTES = X_AT + X_ROWS * STEP };
    enum { AHEAD = STAGES - 2 /* one is read, and products of another one may run */ };
    static_assert(STAGES % 2 == 0, "places of two stages are copied at once");
    enum { SLOTS = STAGES / 2, PLACES_AT = STAGES * STAGE_BYTES, SLOT_BYTES = W_ROWS * PLACES_PITCH };

    const hc_cuda_gemm_24 &p;
    const int64_t x_row, w_row;
    const pieces<W_ROWS, W_PITCH / 16, THREADS> w;
    const pieces<X_ROWS, STEP / 16, THREADS> x;
    const pieces<W_ROWS, PLACES_PITCH / 16, THREADS> places;

    HC_DEVICE tile(const hc_cuda_gemm_24 &given)
        : p(given), x_row((int64_t)blockIdx.x * X_ROWS), w_row((int64_t)blockIdx.y * W_ROWS),
          w(p.gemm.w, w_row, p.gemm.n, p.gemm.ld / 2), x(p.gemm.x, x_row, p.gemm.m, p.gemm.ld),
          places(p.metadata, w_row, p.gemm.n, p.gemm.ld / 8) {}

    static HC_DEVICE unsigned char *stage_of(int step) { return hc_shared() + step % STAGES * STAGE_BYTES; }
    static HC_DEVICE unsigned char *slot_of(int step) {
        return hc_shared() + PLACES_AT + step / 2 % SLOTS * SLOT_BYTES;
    }
    HC_DEVICE void load(int step) const {
        w.load(stage_of(step), step);
        x.load(stage_of(step) + X_AT, step);
        if (step % 2 == 0)
            places.load_or_zeros(slot_of(step), step / 2, p.gemm.ld / 8);
    }
    HC_DEVICE void run() const {
        const int lane = (int)threadIdx.x % 32, own = (int)threadIdx.x / 32 * 16 + lane / 4; /* a row of w */
        const int own_places = hc_piece_place<PLACES_PITCH / 16>(own + lane % 2 * 8, 0) + lane / 2 % 2 * 4;
        const int steps = (int)(p.gemm.ld / STEP);
        int32_t dots[SUMS] = {};
        for (int i = 0; i < AHEAD; i++) {
            if (i < steps)
                load(i);
            hc_copy_commit();
        }
        hc_copy_wait<AHEAD - 1>();
        for (int step = 0; step < steps; step++) {
            hc_fence_shared();
            hc_barrier();
            const unsigned char *stage = stage_of(step), *slot = slot_of(step) + (own_places ^ step % 2 * 16);
            const uint64_t a = hc_descriptor_64(hc_shared_address(stage + threadIdx.x / 128 * (64 * W_PITCH)));
            const uint64_t b = hc_descriptor(hc_shared_address(stage + X_AT));
            uint32_t kept[STEP / 64];
#pragma unroll
            for (int k = 0; k < STEP / 64; k++)
                kept[k] = hc_legal_places(*(const uint32_t *)(slot + k * 8));
            hc_wgmma_fence();
#pragma unroll
            for (int k = 0; k < STEP / 64; k++)
                hc_wgmma_sparse_s8(dots, a + k * 2, b + k * 4, kept[k]);
            hc_wgmma_commit();
            if (step + AHEAD < steps) /* into a stage whose products ended for all before the barrier */
                load(step + AHEAD);
            hc_copy_commit();
            hc_copy_wait<AHEAD - 1>();
            hc_wgmma_wait<1>(dots);
        }
        hc_wgmma_wait<0>(dots);
        hc_copy_wait<0>();
#pragma unroll
        for (int i = 0; i < SUMS; i += 4)
#pragma unroll
            for (int c = 0; c < 2; c++) {
                const line_of<hc_cuda_gemm> line(p.gemm, x_row + i * 2 + lane % 4 * 2 + c);
#pragma unroll
                for (int r = 0; r < 2; r++)
                    line.template store<false>(w_row + own + r * 8, dots[i + r * 2 + c], 0);
            }
    }
};

} // namespace

HC_KERNEL(hc_gemm_90a_24_64x16_folded, hc_cuda_gemm_24, 128) { tile<1, 16, 8>(p).run(); }
HC_KERNEL(hc_gemm_90a_24_64x64_folded, hc_cuda_gemm_24, 128) { tile<1, 64, 8>(p).run(); }
HC_KERNEL(hc_gemm_90a_24_64x128_folded, hc_cuda_gemm_24, 128) { tile<1, 128, 8>(p).run(); }
HC_KERNEL(hc_gemm_90a_24_128x128_folded, hc_cuda_gemm_24, 256) { tile<2, 128, 6>(p).run(); }
HC_KERNEL(hc_gemm_90a_24_256x128_folded, hc_cuda_gemm_24, 512) { tile<4, 128, 4>(p).run(); }
HC_KERNEL(hc_gemm_90a_24_256x192_folded, hc_cuda_gemm_24, 512) { tile<4, 192, 4>(p).run(); }
