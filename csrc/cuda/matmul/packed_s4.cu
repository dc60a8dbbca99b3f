/* Folded matmul of few rows with weights of 4 bits, which stay packed until they are in registers.
 *
 *   a lane loads 16 bytes of a row of w: codes 32 t to 32 t + 31 of 128, t = lane % 4; word j of them is its part of mma j
 *
 * Even codes are bytes 4 t .. 4 t + 3 of k, odd ones 16 more: x lies in that order (hc_cuda_integers: for_nibbles). Warps share
 * 8 rows of w each among WARPS_N, and every stage of k among WARPS_K, whose exact sums are added at the end.
 */
#include "cuda/matmul/epilogue.h"
#include "cuda/matmul/nibbles.h"
#include "cuda/matmul/swizzle.h"

namespace {

enum { WARPS_N = 4, WARPS_K = 2, THREADS = WARPS_N * WARPS_K * 32, BN = WARPS_N * 8 };
enum { CODES = 128, STAGE_K = CODES * WARPS_K, PITCH = STAGE_K + 16, PIECES = STAGE_K / 16, W_BYTES = THREADS * 16 };

static inline HC_DEVICE void decode(uint32_t word, uint32_t scale, uint32_t b[2]) {
    b[0] = hc_scaled_codes(hc_unsigned_codes(word), scale);
    b[1] = hc_scaled_codes(hc_unsigned_codes(word >> 4), scale);
}

/* 16 * TILES rows of x. */
template <int TILES, int STAGES> struct few_rows {
    enum { BM = TILES * 16, STAGE_BYTES = BM * PITCH + W_BYTES, LINES = THREADS / PIECES };

    /* The copies of a thread in each stage: a piece of TILES rows of x, one of w. Both come stage by stage. */
    struct pieces {
        const int8_t *x; /* of the block's first row */
        uint32_t x_from[TILES];
        bool has_x[TILES];         /* rows beyond the last are zeros, which cost no bytes of the cache */
        const uint8_t *w, *scales; /* scales: of this lane's codes, two of 4 bits a stage */
        int here,
            scales_here; /* stages in which its piece of w is there, and of its scales: 0 if rows alone have a scale */

        HC_DEVICE pieces(const hc_cuda_gemm_s4 &p, int64_t row, int64_t w_row) : x(p.x + row * p.ld) {
            const int part = (int)threadIdx.x / 32 / WARPS_N, lane = (int)threadIdx.x % 4;
            const int first = part * (CODES / 2) + lane * 16;
#pragma unroll
            for (int i = 0; i < TILES; i++) {
                const int line = (int)threadIdx.x / PIECES + i * LINES;
                has_x[i] = row + line < p.m;
                x_from[i] = hc_held(has_x[i] ? (uint32_t)line * (uint32_t)p.ld + threadIdx.x % PIECES * 16 : 0);
            }
            w = p.w + w_row * p.w_stride + first;
            here = (int)((p.w_row_bytes - first + STAGE_K / 2 - 1) / (STAGE_K / 2));
            scales = p.group_scales + w_row * p.group_scales_stride + first / 16;
            scales_here = p.group_scales ? here : 0;
        }
        /* Its pieces of the next stage, to `to`. */
        HC_DEVICE void load(unsigned char *to, int stage) {
            const int line = (int)threadIdx.x / PIECES;
#pragma unroll
            for (int i = 0; i < TILES; i++)
                hc_copy_16_of_many(to + (line + i * LINES) * PITCH + (int)threadIdx.x % PIECES * 16, x + x_from[i],
                                   has_x[i]);
            x += STAGE_K;
            const bool has = stage < here;
            hc_copy_16_or_zeros(to + BM * PITCH + (int)threadIdx.x * 16, has ? w : (const uint8_t *)x - STAGE_K, has);
            w += STAGE_K / 2;
        }
        /* Those of stage `stage`, the next; codes that are not there are zeros, whatever multiplies them. */
        HC_DEVICE uint32_t load_scales(int stage, uint32_t otherwise) {
            const uint32_t found = stage < scales_here ? *scales : otherwise;
            scales += STAGE_K / 32;
            return found;
        }
    };
    static HC_DEVICE int next(int at) { return at == (STAGES - 1) * STAGE_BYTES ? 0 : at + STAGE_BYTES; }

    static HC_DEVICE void run(const hc_cuda_gemm_s4 &p) {
        const int lane = (int)threadIdx.x % 32, warp = (int)threadIdx.x / 32, warp_n = warp % WARPS_N,
                  slice = warp / WARPS_N;
        const int64_t row = (int64_t)blockIdx.x * BM, column = (int64_t)blockIdx.y * BN + warp_n * 8;
        const int64_t w_row = hc_min(column + lane / 4, p.n - 1);
        const int stages = (int)(p.ld / STAGE_K);
        pieces own(p, row, w_row);
        alignas(16) int32_t dots[TILES][4] = {};
        for (int i = 0; i < STAGES - 1; i++) {
            if (i < stages)
                own.load(hc_shared() + i * STAGE_BYTES, i);
            hc_copy_commit();
        }
        const int x_at = lane % 16 * PITCH + slice * CODES + lane / 16 * 16;
        const int w_at = BM * PITCH + (int)threadIdx.x * 16;
        int at = 0, last = (STAGES - 1) *
                           STAGE_BYTES; /* the stage that is read next, and the one before it, which is free then */
        uint32_t scales = own.load_scales(0, 0x11);
        for (int stage = 0; stage < stages; stage++) {
            hc_copy_wait<STAGES - 2>();
            hc_barrier();
            if (stage + STAGES - 1 < stages)
                own.load(hc_shared() + last, stage + STAGES - 1);
            hc_copy_commit();
            const uint32_t next_scales = own.load_scales(stage + 1, scales);
            const unsigned char *from = hc_shared() + at;
            last = at, at = next(at);
            alignas(16) uint32_t words[4];
            memcpy(words, __builtin_assume_aligned(from + w_at, 16), 16);
#pragma unroll
            for (int j = 0; j < 4; j++) {
                uint32_t b[2];
                decode(words[j], j < 2 ? scales & 15 : scales >> 4, b);
#pragma unroll
                for (int i = 0; i < TILES; i++) {
                    uint32_t a[4];
                    hc_load_matrix_x4(a, from + x_at + i * 16 * PITCH + j * 32);
                    hc_mma_s8(dots[i], a, b);
                }
            }
            scales = next_scales;
        }
        hc_copy_wait<0>();
        /* sums of the other slices of k */
        hc_barrier();
        const int other_row = (int)threadIdx.x % (WARPS_N * 32);
        if (slice > 0)
#pragma unroll
            for (int i = 0; i < TILES; i++)
                hc_store_16(hc_shared() + hc_piece_place<TILES>(other_row, i), dots[i]);
        hc_barrier();
        if (slice > 0)
            return;
        static_assert(WARPS_K == 2, "one other slice");
#pragma unroll
        for (int i = 0; i < TILES; i++) {
            alignas(16) int32_t other[4];
            memcpy(other, __builtin_assume_aligned(hc_shared() + hc_piece_place<TILES>(other_row, i), 16), 16);
#pragma unroll
            for (int r = 0; r < 4; r += 2) {
                const line_of<hc_cuda_gemm_s4> line(p, row + i * 16 + lane / 4 + r / 2 * 8);
#pragma unroll
                for (int c = 0; c < 2; c++)
                    line.template store<false>(column + lane % 4 * 2 + c, dots[i][r + c] + other[r + c], 0.0f);
            }
        }
    }
};

} // namespace

HC_KERNEL(hc_gemm_s4_16, hc_cuda_gemm_s4, 256, 6) { few_rows<1, 4>::run(p); }
HC_KERNEL(hc_gemm_s4_32, hc_cuda_gemm_s4, 256, 5) { few_rows<2, 3>::run(p); }
HC_KERNEL(hc_gemm_s4_64, hc_cuda_gemm_s4, 256) { few_rows<4, 2>::run(p); }
